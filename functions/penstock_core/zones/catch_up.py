"""The recovery's pass over the whole index, in portions: its zones, how far it has come, and its findings.

A pass is for the zones that were catching up when it began, told by the versions of their states. If one of them is
moved meanwhile, or another joins, a new pass begins. A portion may be done twice. Only one count matters to what
follows, `failures`, and a portion saves it together with the cursor that lies behind it. `lost` is told with the zone's
state when the pass has ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock_core.ids import ZoneName
from penstock_core.zones.zone_state import ZoneStates, ZoneStatus, may_end_pass


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
