"""The plan of faults: it is drawn from a seed before the run begins, so a seed names a plan.

At most one zone is broken at a time, for G1 promises to survive one. Strikes at single calls come in addition.
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random

_FIRST_AT_S = 1.0
_ZONE_S = (5.0, 10.0)
_ZONE_GAP_S = (1.0, 4.0)
STRIKES_PER_S = 2.5
_RUN_MAX = 12  # more than the 5 attempts of adapters/dynamodb/client.py


class ZoneFault(StrEnum):
    """The fault of every call to a zone's bucket."""

    MISSING = "zone answers 404"
    REFUSING = "zone answers 503"
    HANGING = "zone hangs"
    SLOW = "zone is slow"
    CORRUPTING = "zone corrupts what is read"


class Strike(StrEnum):
    """The fault of a single call."""

    THROTTLED = "DynamoDB throttles"
    FAILED = "DynamoDB answers 500, not applied"
    FAILED_APPLIED = "DynamoDB answers 500, applied"
    CONFLICT = "DynamoDB answers a transaction conflict"
    CANCELLED = "DynamoDB cancels a transaction"
    KILL_BEFORE = "function killed before the effect"
    KILL_AFTER = "function killed after the effect"
    RESET = "connection of function reset, not applied"
    LOST_REPLY = "reply to function lost, applied"
    CLIENT_RESET = "connection of client reset, not applied"
    CLIENT_LOST_REPLY = "reply to client lost, applied"


_WRITES = ("UpdateItem", "TransactWriteItems", "PutObject")
_READS = ("GetItem", "BatchGetItem", "Query", "GetObject")
_API = (
    "POST /v1/produce",
    "POST /v1/fetch",
    "POST /v1/groups",
    "POST /v1/share-groups",
    "POST /v1/transactions",
    "DELETE /v1/topics",
)

# For DynamoDB only: appends, rolls and commits consist of TransactWriteItems and UpdateItem.
_TARGETS: dict[Strike, tuple[str, ...]] = {
    Strike.THROTTLED: ("UpdateItem", "TransactWriteItems", "GetItem", "BatchGetItem", "Query"),
    Strike.FAILED: ("UpdateItem", "TransactWriteItems", "GetItem", "BatchGetItem", "Query"),
    Strike.FAILED_APPLIED: ("UpdateItem", "TransactWriteItems"),
    Strike.CONFLICT: ("UpdateItem",),
    Strike.CANCELLED: ("TransactWriteItems",),
    Strike.KILL_BEFORE: (*_WRITES, *_READS),
    Strike.KILL_AFTER: (*_WRITES, "GetObject"),
    Strike.RESET: (*_WRITES, *_READS),
    Strike.LOST_REPLY: (*_WRITES, "Query"),
    Strike.CLIENT_RESET: _API,
    Strike.CLIENT_LOST_REPLY: _API,
}
# Faults that may make the service append twice or forget an append come more often than the rest.
_OFTEN = {(strike, "UpdateItem"): 3 for strike in (Strike.FAILED_APPLIED, Strike.KILL_AFTER, Strike.LOST_REPLY)}
_IN_A_RUN = (Strike.THROTTLED, Strike.CONFLICT, Strike.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOutage:
    """A zone is broken in `[start_s, end_s)` of the run."""

    zone: str
    fault: ZoneFault
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStrike:
    """From `at_s` on, the next `count` calls of `operation` are struck."""

    strike: Strike
    operation: str
    at_s: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Outages and strikes in order of time. Outages do not overlap."""

    seed: int
    seconds: float
    outages: tuple[ZoneOutage, ...]
    strikes: tuple[PlannedStrike, ...]


def make_plan(seed: int, seconds: float, zones: tuple[str, ...], strikes_per_s: float = STRIKES_PER_S) -> Plan:
    """Draw the plan of a seed, with so many strikes a second on average.

    Every kind of outage and every pair of strike and operation comes once before any comes again, while the time
    allows.
    """
    chance = Random(seed)
    return Plan(
        seed=seed,
        seconds=seconds,
        outages=tuple(_outages(chance, seconds, zones)),
        strikes=tuple(_strikes(chance, seconds, strikes_per_s)),
    )


def _outages(chance: Random, seconds: float, zones: tuple[str, ...]) -> list[ZoneOutage]:
    outages: list[ZoneOutage] = []
    start_s = _FIRST_AT_S
    faults: list[ZoneFault] = []
    while start_s < seconds:
        faults = faults or chance.sample(list(ZoneFault), len(ZoneFault))
        end_s = min(seconds, start_s + chance.uniform(*_ZONE_S))
        outages.append(ZoneOutage(zone=chance.choice(zones), fault=faults.pop(), start_s=start_s, end_s=end_s))
        start_s = end_s + chance.uniform(*_ZONE_GAP_S)
    return outages


def _strikes(chance: Random, seconds: float, strikes_per_s: float) -> list[PlannedStrike]:
    pairs = [
        (strike, operation)
        for strike, operations in _TARGETS.items()
        for operation in operations
        for _ in range(_OFTEN.get((strike, operation), 1))
    ]
    strikes: list[PlannedStrike] = []
    queue: list[tuple[Strike, str]] = []
    at_s = _FIRST_AT_S
    while at_s < seconds:
        queue = queue or chance.sample(pairs, len(pairs))
        strike, operation = queue.pop()
        count = chance.randint(1, _RUN_MAX) if strike in _IN_A_RUN else 1
        strikes.append(PlannedStrike(strike=strike, operation=operation, at_s=at_s, count=count))
        at_s += chance.expovariate(strikes_per_s)
    return strikes
