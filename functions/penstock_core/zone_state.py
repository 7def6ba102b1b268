"""Zones in and out of sync: the states, who may move a zone between them, and what writers and readers make of them.

Pure. All zones' states are one value with one version, stored as one item: whoever changes a zone has seen all of them,
so two appenders that each blame another zone cannot take both out (docs/adr/0004). A zone that nothing is stored of
is in sync since ever.

```
            appender                   keeper: a probe object came back
 in_sync ─────────────▶ out_of_sync ─────────────────────────────────────▶ catching_up
    ▲ │                      ▲                                              │  │ ▲ ▲
    │ │                      └──────────────── appender ────────────────────┘  │ │ │ operator
    └─│─────────────────────── keeper: a whole pass left nothing missing ──────┘ │ taken_out ◀── operator, from any
      └─────────────────────── operator: look whether it holds everything ───────┘
```
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import ZoneName
from penstock_core.quorum import Acks, majority_of

REMEMBERED_MS_MAX = 10_000  # how old the states may be that a writer goes by
FUNCTION_MS_MAX = 30_000  # how long a writer may take; infra holds its functions to less
BARRIER_MS = REMEMBERED_MS_MAX + FUNCTION_MS_MAX
REASON_LENGTH_MAX = 500


class ZoneStatus(Enum):
    """The words of the API and of the stored item."""

    IN_SYNC = "in_sync"
    OUT_OF_SYNC = "out_of_sync"
    CATCHING_UP = "catching_up"
    TAKEN_OUT = "taken_out"


class Mover(Enum):
    """Who changes a zone's state."""

    APPENDER = "appender"
    KEEPER = "keeper"
    OPERATOR = "operator"


TRANSITIONS: Mapping[tuple[ZoneStatus, ZoneStatus], Mover] = {
    (ZoneStatus.IN_SYNC, ZoneStatus.OUT_OF_SYNC): Mover.APPENDER,
    (ZoneStatus.CATCHING_UP, ZoneStatus.OUT_OF_SYNC): Mover.APPENDER,
    (ZoneStatus.OUT_OF_SYNC, ZoneStatus.CATCHING_UP): Mover.KEEPER,
    (ZoneStatus.CATCHING_UP, ZoneStatus.IN_SYNC): Mover.KEEPER,
    (ZoneStatus.IN_SYNC, ZoneStatus.TAKEN_OUT): Mover.OPERATOR,
    (ZoneStatus.CATCHING_UP, ZoneStatus.TAKEN_OUT): Mover.OPERATOR,
    (ZoneStatus.OUT_OF_SYNC, ZoneStatus.TAKEN_OUT): Mover.OPERATOR,
    (ZoneStatus.TAKEN_OUT, ZoneStatus.CATCHING_UP): Mover.OPERATOR,
    (ZoneStatus.IN_SYNC, ZoneStatus.CATCHING_UP): Mover.OPERATOR,
}

_WRITTEN = (ZoneStatus.IN_SYNC, ZoneStatus.CATCHING_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneState:
    """One zone's state. `version` is that of the change that made it: it tells one stay in a state from the next."""

    status: ZoneStatus = ZoneStatus.IN_SYNC
    version: int = 0
    since_ms: int = 0
    reason: str = ""


IN_SYNC_FROM_THE_START = ZoneState()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneStates:
    """All zones' states as one read shows them; `version` rises by one with every change of any of them."""

    version: int = 0
    by_zone: Mapping[ZoneName, ZoneState] = field(default_factory=dict)

    def of(self, zone: ZoneName) -> ZoneState:
        return self.by_zone.get(zone, IN_SYNC_FROM_THE_START)

    def in_sync(self, zones: Sequence[ZoneName]) -> int:
        """The bitmap of those in sync, by the order of `zones`."""
        return _bitmap(self.of(zone).status is ZoneStatus.IN_SYNC for zone in zones)

    def written(self, zones: Sequence[ZoneName]) -> int:
        """The bitmap of those that appends are put to: in sync and catching up."""
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
    """The states after `mover` has moved `zone`; to be stored on condition that the stored version is still theirs.

    Raises UNKNOWN_ZONE; ZONE_STATE_CONFLICT for a move that is not this mover's to make, or that would leave no
    majority in sync: appends by quorum need it in any case, so nobody is helped.
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


def is_stored(acks: Acks, confirmed: int, awaited: int, configured: int, min_insync_zones: int = 1) -> bool:
    """Whether an append may be committed: bitmaps of the zones that confirmed its segment, and of those in sync that
    have not failed the writer's last puts.

    Confirmations of zones that are catching up count. `leader` takes the first, `quorum` a majority of the *configured*
    zones, so that two quorums always share one. `all` takes a majority too, and `min_insync_zones` at least, with every
    awaited zone among them.
    """
    match acks:
        case Acks.NONE | Acks.LEADER:
            return confirmed != 0
        case Acks.QUORUM:
            return confirmed.bit_count() >= majority_of(configured)
        case Acks.ALL:
            copies = max(majority_of(configured), min(min_insync_zones, configured))
            return confirmed.bit_count() >= copies and awaited & ~confirmed == 0


def may_end_pass(state: ZoneState, began_ms: int) -> bool:
    """Whether a pass over the index that began then may be the one that brings a zone in sync.

    Not before every writer that may have gone by older states is done: from then on, a ref without the zone's bit is a
    missed put like any other.
    """
    return state.status is ZoneStatus.CATCHING_UP and began_ms >= state.since_ms + BARRIER_MS


def read_order(states: ZoneStates, fastest_first: Iterable[ZoneName], confirmed: frozenset[ZoneName]) -> list[ZoneName]:
    """Zones that confirmed a segment first, then those that may have got it since, then those that are out."""
    return sorted(
        fastest_first, key=lambda zone: 2 if states.of(zone).status not in _WRITTEN else 0 if zone in confirmed else 1
    )


def _needs_majority(status: ZoneStatus, mover: Mover) -> bool:
    """An appender spares a zone that is catching up, too: while few are in sync, its confirmations are needed."""
    return mover is Mover.APPENDER or status is ZoneStatus.IN_SYNC


def _way_out(to: ZoneStatus, mover: Mover) -> str:
    if mover is Mover.OPERATOR and to is ZoneStatus.CATCHING_UP:
        return "it catches up by itself as soon as it can be written and read"
    return f"{mover.value} cannot move it to {to.value}"


def _bitmap(bits: Iterable[bool]) -> int:
    return sum(1 << index for index, bit in enumerate(bits) if bit)
