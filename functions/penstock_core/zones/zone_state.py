"""Zones in and out of sync: the states, their movers, and what writers and readers make of them.

Pure. All zones' states are one value with one version, stored as one item. So each change of a zone has seen all of
them, and two appenders that each blame another zone cannot take both out (docs/adr/0004). A zone without a stored state
is in sync since ever.

```
            appender                   recovery: a probe object came back
 in_sync ─────────────▶ out_of_sync ─────────────────────────────────────▶ catching_up
    ▲ │                      ▲                                              │  │ ▲ ▲
    │ │                      └──────────────── appender ────────────────────┘  │ │ │ operator
    └─│─────────────────────── recovery: a whole pass left nothing missing ────┘ │ taken_out ◀── operator, from any
      └─────────────────────── operator: look whether it holds everything ───────┘
```

The recovery's pass over the whole index, in portions: its zones, how far it has come, and its findings.

A pass is for the zones that were catching up when it began, told by the versions of their states. If one of them is
moved meanwhile, or another joins, a new pass begins. A portion may be done twice. Only one count matters to what
follows, `failures`, and a portion saves it together with the cursor that lies behind it. `lost` is told with the zone's
state when the pass has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import ZoneName

REMEMBERED_MS_MAX = 10_000  # a writer goes by states that are no older
FUNCTION_MS_MAX = 30_000  # an append runs no longer: requests end by then, and tasks look at a window
BARRIER_MS = REMEMBERED_MS_MAX + FUNCTION_MS_MAX
REASON_LENGTH_MAX = 500


class ZoneStatus(Enum):
    """The words of the API and of the stored item."""

    IN_SYNC = "in_sync"
    OUT_OF_SYNC = "out_of_sync"
    CATCHING_UP = "catching_up"
    TAKEN_OUT = "taken_out"


class Mover(Enum):
    """The part of the system that changes a zone's state."""

    APPENDER = "appender"
    RECOVERY = "keeper"  # the word in error messages and logs
    OPERATOR = "operator"


TRANSITIONS: Mapping[tuple[ZoneStatus, ZoneStatus], Mover] = {
    (ZoneStatus.IN_SYNC, ZoneStatus.OUT_OF_SYNC): Mover.APPENDER,
    (ZoneStatus.CATCHING_UP, ZoneStatus.OUT_OF_SYNC): Mover.APPENDER,
    (ZoneStatus.OUT_OF_SYNC, ZoneStatus.CATCHING_UP): Mover.RECOVERY,
    (ZoneStatus.CATCHING_UP, ZoneStatus.IN_SYNC): Mover.RECOVERY,
    (ZoneStatus.IN_SYNC, ZoneStatus.TAKEN_OUT): Mover.OPERATOR,
    (ZoneStatus.CATCHING_UP, ZoneStatus.TAKEN_OUT): Mover.OPERATOR,
    (ZoneStatus.OUT_OF_SYNC, ZoneStatus.TAKEN_OUT): Mover.OPERATOR,
    (ZoneStatus.TAKEN_OUT, ZoneStatus.CATCHING_UP): Mover.OPERATOR,
    (ZoneStatus.IN_SYNC, ZoneStatus.CATCHING_UP): Mover.OPERATOR,
}
_WRITTEN = (ZoneStatus.IN_SYNC, ZoneStatus.CATCHING_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneState:
    """One zone's state.

    `version` is that of the change that made the state. So it tells one stay in a state from the next.
    """

    status: ZoneStatus = ZoneStatus.IN_SYNC
    version: int = 0
    since_ms: int = 0
    reason: str = ""


IN_SYNC_FROM_THE_START = ZoneState()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneStates:
    """All zones' states as one read shows them. `version` rises by one with every change of any of them."""

    version: int = 0
    by_zone: Mapping[ZoneName, ZoneState] = field(default_factory=dict)

    def of(self, zone: ZoneName) -> ZoneState:
        """The state of the zone; in sync from the start if none is stored."""
        return self.by_zone.get(zone, IN_SYNC_FROM_THE_START)

    def in_sync(self, zones: Sequence[ZoneName]) -> int:
        """The bitmap of the zones in sync, by the order of `zones`."""
        return _bitmap(self.of(zone).status is ZoneStatus.IN_SYNC for zone in zones)

    def written(self, zones: Sequence[ZoneName]) -> int:
        """The bitmap of the zones that appends are put to: in sync and catching up."""
        return _bitmap(self.of(zone).status in _WRITTEN for zone in zones)


EVERY_ZONE_IN_SYNC = ZoneStates()


def move(
    states: ZoneStates,
    zones: Sequence[ZoneName],
    zone: ZoneName,
    to: ZoneStatus,
    mover: Mover,
    *,
    now_ms: int,
    reason: str,
) -> ZoneStates:
    """The states after `mover` has moved `zone`; to be stored on condition that the stored version is unchanged.

    Raises UNKNOWN_ZONE. Raises ZONE_STATE_CONFLICT for a move that this mover may not make, or that would leave no
    majority in sync. Appends by quorum need a majority in any case, so such a move would help no client.
    """
    if zone not in zones:
        raise PenstockError(ErrorCode.UNKNOWN_ZONE, f"zone {zone!r:.100} does not exist: there are {', '.join(zones)}")
    status = states.of(zone).status
    if TRANSITIONS.get((status, to)) is not mover:
        raise PenstockError(
            ErrorCode.ZONE_STATE_CONFLICT,
            f"zone {zone} is {status.value}: {_way_out(to, mover)}",
        )
    left = [each for each in zones if each != zone and states.of(each).status is ZoneStatus.IN_SYNC]
    if _needs_majority(status, mover) and len(left) < majority_of(len(zones)):
        raise PenstockError(
            ErrorCode.ZONE_STATE_CONFLICT,
            f"zone {zone} cannot be moved to {to.value}: {len(left)} of {len(zones)} zones would be left in sync, and "
            f"appends need {majority_of(len(zones))}",
        )
    version = states.version + 1
    new = ZoneState(status=to, version=version, since_ms=now_ms, reason=reason[:REASON_LENGTH_MAX])
    return replace(states, version=version, by_zone={**states.by_zone, zone: new})


class Acks(Enum):
    """The number of zones that must confirm an append.

    `NONE` is stored as `ONE`; its client does not wait for the answer.
    """

    NONE = "none"
    ONE = "one"
    QUORUM = "quorum"
    ALL = "all"


def is_stored(acks: Acks, confirmed: int, awaited: int, configured: int, min_insync_zones: int = 1) -> bool:
    """True if an append may be committed.

    `confirmed` is the bitmap of the zones that confirmed its segment. `awaited` is that of the zones in sync that have
    not failed the writer's last puts. Confirmations of zones that are catching up count. `one` takes the first,
    `quorum` a majority of the *configured* zones, so that two quorums always share one. `all` takes a majority too, at
    least `min_insync_zones`, and every awaited zone among them.
    """
    match acks:
        case Acks.NONE | Acks.ONE:
            return confirmed != 0
        case Acks.QUORUM:
            return confirmed.bit_count() >= majority_of(configured)
        case Acks.ALL:
            copies = max(majority_of(configured), min(min_insync_zones, configured))
            return confirmed.bit_count() >= copies and awaited & ~confirmed == 0


def may_end_pass(state: ZoneState, began_ms: int) -> bool:
    """True if a pass over the index that began then may be the one that brings the zone in sync.

    The pass must not begin before every writer that went by older states is done. From then on, a ref without the
    zone's bit is a missed put like any other.
    """
    return state.status is ZoneStatus.CATCHING_UP and began_ms >= state.since_ms + BARRIER_MS


def read_order(states: ZoneStates, fastest_first: Iterable[ZoneName], confirmed: frozenset[ZoneName]) -> list[ZoneName]:
    """The zones in the order of reading.

    First the zones that confirmed the segment, then zones that may have got it since, then zones that are out. Within
    each of the three the order of `fastest_first` stays.
    """
    return sorted(
        fastest_first, key=lambda zone: 2 if states.of(zone).status not in _WRITTEN else 0 if zone in confirmed else 1
    )


def _needs_majority(status: ZoneStatus, mover: Mover) -> bool:
    """An appender spares a zone that catches up, too: while few zones are in sync, its confirmations are needed."""
    return mover is Mover.APPENDER or status is ZoneStatus.IN_SYNC


def _way_out(to: ZoneStatus, mover: Mover) -> str:
    if mover is Mover.OPERATOR and to is ZoneStatus.CATCHING_UP:
        return "it catches up by itself as soon as it can be written and read"
    return f"{mover.value} cannot move it to {to.value}"


def _bitmap(bits: Iterable[bool]) -> int:
    return sum(1 << index for index, bit in enumerate(bits) if bit)


ACKS_ALIASES = {"leader": Acks.ONE, "1": Acks.ONE}  # Kafka's names of `one`


def parse_acks(text: object) -> Acks:
    """The acks of that name, or of that alias. Raises INVALID_REQUEST, which names the value and the choices."""
    if isinstance(text, str) and text in ACKS_ALIASES:
        return ACKS_ALIASES[text]
    try:
        return Acks(text)
    except ValueError:
        choices = ", ".join(acks.value for acks in Acks)
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"acks={shown(text)}: must be one of {choices}") from None


def majority_of(configured: int) -> int:
    """The number of zones in a quorum."""
    return configured // 2 + 1


class Cursor(NamedTuple):
    """The start of the next portion. Everything before it is done, in the order of topic names and partitions."""

    topic: str = ""
    partition: int = 0
    offset: int = 0


START = Cursor()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The work of a pass so far.

    - `refs` were looked at. `segments` and `bytes` were copied.
    - `failures` are refs that still miss a zone.
    - `lost` are refs whose segment is lost: every zone was asked for it, and none has a good copy.
    """

    refs: int = 0
    segments: int = 0
    bytes: int = 0
    failures: int = 0
    lost: int = 0

    def plus(self, other: "Progress") -> "Progress":
        """The sum, count by count."""
        return Progress(
            refs=self.refs + other.refs,
            segments=self.segments + other.segments,
            bytes=self.bytes + other.bytes,
            failures=self.failures + other.failures,
            lost=self.lost + other.lost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpPass:
    """A pass as it is stored.

    `saves` counts how often this pass and those before it were stored. It is the condition of the next save.
    """

    zones: Mapping[ZoneName, int]
    began_ms: int
    saves: int = 0
    cursor: Cursor = START
    progress: Progress = field(default_factory=Progress)


def zones_catching_up(states: ZoneStates, zones: Sequence[ZoneName]) -> Mapping[ZoneName, int]:
    """The zones that a pass would be for if it began now, with the versions of their states."""
    found = {zone: states.of(zone) for zone in zones}
    return {zone: state.version for zone, state in found.items() if state.status is ZoneStatus.CATCHING_UP}


def begin_pass(before: CatchUpPass | None, zones: Mapping[ZoneName, int], now_ms: int) -> CatchUpPass:
    """A new pass, to be saved over `before`."""
    return CatchUpPass(zones=zones, began_ms=now_ms, saves=1 if before is None else before.saves + 1)


def advance(current: CatchUpPass, cursor: Cursor, done: Progress) -> CatchUpPass:
    """The pass after one more portion."""
    return replace(current, saves=current.saves + 1, cursor=cursor, progress=current.progress.plus(done))


def zones_caught_up(ended: CatchUpPass, states: ZoneStates) -> list[ZoneName]:
    """The zones that a pass brings in sync once it has come to its end.

    Their state must still be the one that the pass began for. The pass must have begun late enough (`may_end_pass`) and
    left them nothing to copy. A segment that is lost in every zone keeps no zone out, since no zone is behind another
    for it.
    """
    if ended.progress.failures:
        return []
    return [
        zone
        for zone, version in ended.zones.items()
        if states.of(zone).version == version and may_end_pass(states.of(zone), ended.began_ms)
    ]
