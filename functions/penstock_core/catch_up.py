"""A keeper's pass over the whole index, in portions: for whom it is, how far it has come, what it found.

A pass is for the zones that were catching up when it began, told by the versions of their states: if one of them is
moved meanwhile, or another joins, a new pass begins. Portions may be done twice: nothing depends on what a pass has
counted but `failures`, which a portion saves together with the cursor that lies behind it. `lost` is told with the
zone's state when the pass has ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock_core.ids import ZoneName
from penstock_core.zone_state import ZoneStates, ZoneStatus, may_end_pass


class Cursor(NamedTuple):
    """Where the next portion begins: everything before it is done, in the order of topic names and partitions."""

    topic: str = ""
    partition: int = 0
    offset: int = 0


START = Cursor()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What was done: refs looked at, segments and bytes copied, refs that still miss a zone, and refs whose segment is
    lost: every zone was asked for it, and none has a good copy."""

    refs: int = 0
    segments: int = 0
    bytes: int = 0
    failures: int = 0
    lost: int = 0

    def plus(self, other: "Progress") -> "Progress":
        return Progress(
            refs=self.refs + other.refs,
            segments=self.segments + other.segments,
            bytes=self.bytes + other.bytes,
            failures=self.failures + other.failures,
            lost=self.lost + other.lost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpPass:
    """`saves` counts how often this pass and those before it were stored: the condition of the next save."""

    zones: Mapping[ZoneName, int]
    began_ms: int
    saves: int = 0
    cursor: Cursor = START
    progress: Progress = field(default_factory=Progress)


def zones_catching_up(states: ZoneStates, zones: Sequence[ZoneName]) -> Mapping[ZoneName, int]:
    """Who a pass that begins now is for, with the versions of their states."""
    found = {zone: states.of(zone) for zone in zones}
    return {zone: state.version for zone, state in found.items() if state.status is ZoneStatus.CATCHING_UP}


def begin_pass(before: CatchUpPass | None, zones: Mapping[ZoneName, int], now_ms: int) -> CatchUpPass:
    """A new pass, to be saved over `before`."""
    return CatchUpPass(zones=zones, began_ms=now_ms, saves=1 if before is None else before.saves + 1)


def advance(current: CatchUpPass, cursor: Cursor, done: Progress) -> CatchUpPass:
    """The pass after one more portion."""
    return replace(current, saves=current.saves + 1, cursor=cursor, progress=current.progress.plus(done))


def zones_caught_up(ended: CatchUpPass, states: ZoneStates) -> list[ZoneName]:
    """The zones that a pass which has come to its end brings in sync: those whose state is still the one it began for,
    if it began late enough and left them nothing to copy. What is lost in every zone keeps nobody out: none is behind
    another for it."""
    if ended.progress.failures:
        return []
    return [
        zone
        for zone, version in ended.zones.items()
        if states.of(zone).version == version and may_end_pass(states.of(zone), ended.began_ms)
    ]
