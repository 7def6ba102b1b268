"""Quotas as an operator sets them: what a principal or a topic may send and read in a second, and what it may have.

A quota is that of one principal or topic, or of all whose names match a pattern: a beginning and a `*`. The pattern `*`
is the default. Each that matches has a budget of its own, unless the quota is shared: then all of them have one.

Each limit is looked up by itself: it is that of the most specific quota that has the limit. The quota of the name
itself goes first, then that of the longest beginning, and the default last. Of a missing limit there is no bound.

Claims: a principal's list of what it has created, by which its quotas count (docs/adr/0053).

A claim is stored before its resource is made. Claims whose resources are gone, or were never made, count until a call
of the principal is refused: that call looks which of them are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock_core.acls.rule import EVERY, parse_principal_pattern
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import parse_topic_name
from penstock_core.limits import (
    INSTANCE_SHARES_MAX,
    QUOTA_COUNT_MAX,
    QUOTA_RATE_MAX,
    QUOTA_STORED_BYTES_MAX,
    QUOTAS_MAX,
)

DEFAULT = "*"  # the name of the quota of all that have none of their own
STORED_BYTES = "stored_bytes_max"  # the limit of what a topic may hold


class Subject(StrEnum):
    """The two kinds of things that have quotas."""

    PRINCIPAL = "principal"
    TOPIC = "topic"


class Rate(StrEnum):
    """The limits that are rates, in units a second."""

    PRODUCE_BYTES = "produce_bytes_per_s"
    PRODUCE_REQUESTS = "produce_requests_per_s"
    FETCH_BYTES = "fetch_bytes_per_s"
    FETCH_REQUESTS = "fetch_requests_per_s"


class Count(StrEnum):
    """The limits of what a principal may create, counted over all that it has created and that is still there."""

    TOPICS = "topics_max"
    PARTITIONS = "partitions_max"
    GROUPS = "groups_max"
    SUBSCRIPTIONS = "subscriptions_max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of one principal or topic, or of all that match a pattern. `is_shared`: these have one budget.

    `stored_bytes_max` is what a topic may hold, None without a bound. `declared_by` names the resource of a template
    that has set it, "" for everybody else.
    """

    subject: Subject
    name: str
    rates: Mapping[Rate, int] = field(default_factory=dict)
    counts: Mapping[Count, int] = field(default_factory=dict)
    stored_bytes_max: int | None = None
    is_shared: bool = False
    declared_by: str = ""

    @property
    def is_pattern(self) -> bool:
        """True for the quota of all names that begin like this one."""
        return self.name.endswith(EVERY)

    def to_json(self) -> dict[str, int]:
        """The limits as the API writes them, without those that are missing."""
        stored = {} if self.stored_bytes_max is None else {STORED_BYTES: self.stored_bytes_max}
        return {str(limit): value for limits in (self.rates, self.counts) for limit, value in limits.items()} | stored


def parse_quota(subject: str, name: str, limits: Mapping[str, Any], *, is_shared: bool = False) -> Quota:
    """A quota from what a caller sent. Null stands for a limit that is taken away.

    Raises INVALID_CONFIG for an unknown subject or limit, for a value out of its bounds, and for a shared quota of one
    name or with counts. Raises INVALID_NAME for the name of a topic that no topic can have.
    """
    kind = _subject(subject)
    rates: dict[Rate, int] = {}
    counts: dict[Count, int] = {}
    stored_bytes_max: int | None = None
    for name_of_limit, value in limits.items():
        limit = _limit(kind, name_of_limit)
        if value is None:
            continue
        if isinstance(limit, Rate):
            rates[limit] = _checked(name_of_limit, value, least=1, most=QUOTA_RATE_MAX)
        elif isinstance(limit, Count):
            counts[limit] = _checked(name_of_limit, value, least=0, most=QUOTA_COUNT_MAX)
        else:
            stored_bytes_max = _checked(name_of_limit, value, least=0, most=QUOTA_STORED_BYTES_MAX)
    quota = Quota(
        subject=kind,
        name=_name(kind, name),
        rates=rates,
        counts=counts,
        stored_bytes_max=stored_bytes_max,
        is_shared=is_shared,
    )
    if is_shared and not quota.is_pattern:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"shared with name {shown(name)}: give a pattern, with a {EVERY} at the end"
        )
    if is_shared and (alone := [each for each in quota.to_json() if each not in set(Rate)]):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"shared with {', '.join(alone)}: what a principal creates, or a topic holds, counts for it alone. Set "
            "these limits in a quota that is not shared, of a longer or shorter pattern",
        )
    return quota


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A rate that holds for a name. `shared_by` is the pattern whose names spend it together, "" if none do."""

    units_per_s: int
    shared_by: str = ""


class QuotaBook:
    """All quotas of a stage. The first lookup of a name probes each length of a pattern, and later ones nothing.

    `subjects` tells whether some principal, or some topic, has a quota.
    """

    def __init__(self, quotas: Iterable[Quota]) -> None:
        self._by_name = {(quota.subject, quota.name): quota for quota in quotas}
        self.subjects = frozenset(subject for subject, _ in self._by_name)
        patterns = (name for _, name in self._by_name if name.endswith(EVERY))
        self._lengths = sorted({len(name) - 1 for name in patterns}, reverse=True)
        self._found: dict[tuple[Subject, str], tuple[Quota, ...]] = {}

    def of(self, subject: Subject, name: str) -> tuple[Quota, ...]:
        """The quotas that hold for the name, the most specific one first."""
        found = self._found.get((subject, name))
        if found is None:
            if len(self._found) >= INSTANCE_SHARES_MAX:
                self._found.clear()
            keys = [name, *(f"{name[:length]}{EVERY}" for length in self._lengths if length <= len(name))]
            known = (self._by_name.get((subject, key)) for key in dict.fromkeys(keys))
            found = self._found[subject, name] = tuple(quota for quota in known if quota is not None)
        return found

    def rate(self, subject: Subject, name: str, rate: Rate) -> RateLimit | None:
        """The rate that holds for the name, None without one."""
        for quota in self.of(subject, name):
            if rate in quota.rates:
                return RateLimit(units_per_s=quota.rates[rate], shared_by=quota.name if quota.is_shared else "")
        return None

    def stored_bytes_max(self, topic: str) -> int | None:
        """The bytes that the topic may hold, None without a bound."""
        found = (quota.stored_bytes_max for quota in self.of(Subject.TOPIC, topic))
        return next((limit for limit in found if limit is not None), None)

    def counts(self, principal: str) -> dict[Count, int]:
        """The limits of what the principal may create, without those that are missing."""
        found: dict[Count, int] = {}
        for quota in self.of(Subject.PRINCIPAL, principal):
            found = {**quota.counts, **found}
        return found


def too_many_quotas() -> PenstockError:
    """The error for one quota too many."""
    return PenstockError(
        ErrorCode.TOO_MANY_QUOTAS,
        f"the stage has {QUOTAS_MAX} quotas, and may have no more: delete some, or let a default hold",
        limit=QUOTAS_MAX,
    )


def _subject(text: str) -> Subject:
    try:
        return Subject(text)
    except ValueError:
        known = " or ".join(map(repr, map(str, Subject)))
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"subject {shown(text)}: quotas are of a {known}") from None


def _name(kind: Subject, name: str) -> str:
    if name == DEFAULT:
        return name
    if kind is Subject.TOPIC:
        return f"{parse_topic_name(name.removesuffix(EVERY))}{EVERY if name.endswith(EVERY) else ''}"
    try:
        pattern = parse_principal_pattern(name)  # a session counts as its role, and a role has no path here
    except PenstockError as error:
        raise PenstockError(ErrorCode.INVALID_NAME, error.message) from error
    if " " in name:
        raise PenstockError(
            ErrorCode.INVALID_NAME,
            f"principal {shown(name)}: name one, for example arn:aws:iam::111122223333:role/ledger, those that begin "
            "alike by a * at the end, or * for the default of all",
        )
    return str(pattern)


def _limit(kind: Subject, text: str) -> Rate | Count | str:
    known: dict[str, Rate | Count | str] = {str(each): each for each in Rate}
    known |= {str(each): each for each in Count} if kind is Subject.PRINCIPAL else {STORED_BYTES: STORED_BYTES}
    if text not in known:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"limit {shown(text)}: a quota of a {kind} has {', '.join(known)}"
        )
    return known[text]


def _checked(limit: str, value: object, *, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"{limit}={shown(value)}: must be a whole number from {least} to {most}, or null for no limit",
        )
    return value


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
