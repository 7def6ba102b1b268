"""The port of quotas. `penstock_service.ports` says what all methods raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock_core.quotas.bucket import Bucket, BucketKey
    from penstock_core.quotas.claim import Claim, ClaimKind
    from penstock_core.quotas.quota import Quota, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeOutcome:
    """The outcome of a write: whether it was made, and the bucket as it is then, None if there is none."""

    is_made: bool
    bucket: Bucket | None


class QuotaStore(Protocol):
    """Quotas, the buckets that count what is spent of them, and the claims that count what is created.

    A bucket vanishes a day after its last charge. A claim stays until it is dropped.
    """

    def put(self, quota: Quota) -> None:
        """Stores a quota in place of the one of that subject and name. One put. Raises TOO_MANY_QUOTAS."""

    def delete(self, subject: Subject, name: str) -> bool:
        """Removes a quota. False if there is none. One delete."""

    def list(self) -> Sequence[Quota]:
        """All quotas, by subject and name. One query for each MB."""

    def charge(self, key: BucketKey, bucket: Bucket, units: int, now_ms: int) -> ChargeOutcome:
        """Charges units if there is credit, and the stored bucket has the rate and the beginning of `bucket`.

        Else changes nothing. One conditional update. A repeat after a lost answer charges twice.
        """

    def claims(self, principal: str) -> Sequence[Claim]:
        """All claims of the principal, with those put before the call. One consistent query for each MB."""

    def put_claim(self, principal: str, claim: Claim) -> None:
        """Stores the claim in place of the one of that kind, name and id. One put."""

    def drop_claim(self, principal: str, claim: Claim) -> None:
        """Removes the claim if it is there, unless it was put at another time. One conditional delete."""

    def forget_claim(self, principal: str, kind: ClaimKind, name: str, resource_id: str) -> None:
        """Removes the claim of that kind, name and id, if it is there. One delete."""

    def begin(self, key: BucketKey, old: Bucket | None, new: Bucket) -> ChargeOutcome:
        """Stores `new` in place of `old`, if `old` is still what is stored. One conditional put."""
