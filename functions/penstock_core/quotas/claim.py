"""Claims: a principal's list of what it has created, by which its quotas count (docs/adr/0053).

A claim is stored before its resource is made. Claims whose resources are gone, or were never made, count until a call
of the principal is refused: that call looks which of them are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.quotas.quota import Count


class ClaimKind(StrEnum):
    """The kinds of resources that are counted."""

    TOPIC = "topic"
    PARTITIONS = "partitions"  # that a principal has added to a topic of somebody else
    GROUP = "group"
    SHARE_GROUP = "share_group"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One resource of a principal. `resource_id` tells it from another one of its name.

    A group has no id: each call that makes one draws an id for its claim. Of creations of one name at once, each has a
    claim. They count as one, since one of them wins.

    `partitions` are those of a topic that the principal has made. Partitions that retention took away count on.
    """

    kind: ClaimKind
    name: str
    resource_id: str = ""
    partitions: int = 0
    claimed_at_ms: int

    @property
    def place(self) -> tuple[ClaimKind, str, str]:
        """A principal has one claim of each place."""
        return self.kind, self.name, self.resource_id


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClaim:
    """The claim of a listed group, by its id: it goes when the group goes, whoever removes it."""

    principal: str
    claim_id: str
    claimed_at_ms: int

    def of(self, group: str) -> Claim:
        """The claim among those of its principal."""
        return Claim(kind=ClaimKind.GROUP, name=group, resource_id=self.claim_id, claimed_at_ms=self.claimed_at_ms)


_COUNT_OF = {
    ClaimKind.TOPIC: Count.TOPICS,
    ClaimKind.PARTITIONS: None,
    ClaimKind.GROUP: Count.GROUPS,
    ClaimKind.SHARE_GROUP: Count.GROUPS,
    ClaimKind.SUBSCRIPTION: Count.SUBSCRIPTIONS,
}


def counts_of(claim: Claim, *, is_new: bool) -> frozenset[Count]:
    """The limits that a claim may exceed. A claim that is not new only adds partitions."""
    count = _COUNT_OF[claim.kind]
    own = {count} if is_new and count is not None else set[Count]()
    return frozenset(own | ({Count.PARTITIONS} if claim.partitions else set()))


def totals(claims: Iterable[Claim]) -> dict[Count, int]:
    """The counts of the claims together, by limit. Of one kind and name, the claim with most partitions counts."""
    partitions: dict[tuple[ClaimKind, str], int] = {}
    for claim in claims:
        named = claim.kind, claim.name
        partitions[named] = max(partitions.get(named, 0), claim.partitions)
    found = dict.fromkeys(Count, 0)
    for (kind, _), number in partitions.items():
        count = _COUNT_OF[kind]
        if count is not None:
            found[count] += 1
        found[Count.PARTITIONS] += number
    return found


def exceeded(limits: Mapping[Count, int], counts: Iterable[Count], claims: Sequence[Claim]) -> PenstockError | None:
    """QUOTA_EXCEEDED for the first of `counts` that is above its limit, None if none is."""
    found = totals(claims)
    for count in sorted(counts):
        if count in limits and found[count] > limits[count]:
            what = str(count).removesuffix("_max")
            return PenstockError(
                ErrorCode.QUOTA_EXCEEDED,
                f"your principal would have {found[count]} {what}, and may have {count}={limits[count]}: delete some, "
                "or have the quota raised",
                quota=str(count),
                limit=limits[count],
            )
    return None
