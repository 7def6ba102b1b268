"""The port of access rules. `penstock_service.ports` says what all methods raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock_core.audit.audit_entry import AuditEntry, AuditId
from penstock_core.direct.caller_proof import CallerProof

if TYPE_CHECKING:
    from penstock_core.acls.rule_set import Owners, RuleBook
    from penstock_core.quotas.bucket import Bucket, BucketKey
    from penstock_core.quotas.quota import Claim, ClaimKind, Quota, Subject


class AclStore(Protocol):
    """All access rules of a stage, as one value. Reads are consistent."""

    def revision(self) -> str:
        """The revision of the rules; NO_REVISION if there were never any. One read of a small item."""

    def get(self) -> RuleBook:
        """All rules, of one revision. One read."""

    def owners(self) -> Owners:
        """The resources of templates that declare rules, also of rules that are gone. One read."""

    def change(self, seen: str, book: RuleBook, owners: Owners | None = None) -> None:
        """Stores `book` in place of the rules of the revision `seen`, and `owners` unless they are None.

        Raises CONCURRENT_UPDATE if the stored rules have another one, and TOO_MANY_ACLS if the rules or owners do not
        fit into an item. One transaction, sent once.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeOutcome:
    """The outcome of a write: whether it was made, and the bucket as it is then, None if there is none."""

    is_made: bool
    bucket: Bucket | None


class QuotaStore(Protocol):
    """Quotas, the buckets that count what is spent of them, and the claims that count what is created.

    A bucket vanishes a day after its last charge. A claim stays until it is dropped.
    """

    def put(self, quota: Quota, over: str = "") -> bool:
        """Stores a quota in place of the one of that subject and name. Raises TOO_MANY_QUOTAS.

        With `over`, False for one whose `declared_by` does not begin so. One query and one conditional put.
        """

    def delete(self, subject: Subject, name: str, declared_by: str = "") -> bool:
        """Removes a quota, with `declared_by` only one that this resource has set last. False if there is none.

        One conditional delete.
        """

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


class Identities(Protocol):
    """Checks proofs of callers."""

    def arn_of(self, proof: CallerProof, stage: str) -> str:
        """The ARN of the caller who has signed the proof for that stage. One call.

        Raises NOT_AUTHORIZED if no one has, and IDENTITY_UNAVAILABLE if the authority does not tell.
        """
        ...


class AuditStore(Protocol):
    """The notes of changes that are not in the topic `_audit` yet. Reads are consistent."""

    def put(self, entry: AuditEntry) -> None:
        """Stores the note, in place of the one with its id. One put."""

    def entries(self, limit: int) -> Sequence[AuditEntry]:
        """The `limit` oldest notes, the oldest first. One query."""

    def forget(self, audit_id: AuditId) -> None:
        """Removes the note, if it is there. One delete."""
