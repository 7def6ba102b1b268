"""Recover zones: let those back that answer again, and catch them up until they are in sync. Runs each minute.

A pass goes over the whole index, topic by topic. It copies every segment that a zone of the pass does not hold,
whatever the refs' bits say: the zone's bucket may have been emptied or made anew while the zone was out. A pass may
take many runs, because each portion is saved with the cursor behind it.

A run may die anywhere, and two may run at once. They may then copy a segment or set a bit twice, which changes nothing.
If two save the same pass, one of them is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import segment_time_ms
from penstock_core.limits import CATCH_UP_PORTION_REFS
from penstock_core.log.ref import Ref, Tier
from penstock_core.zones.catch_up import (
    CatchUpPass,
    Progress,
    advance,
    begin_pass,
    zones_catching_up,
    zones_caught_up,
)
from penstock_core.zones.zone_state import FUNCTION_MS_MAX, Mover, ZoneStatus
from penstock_service.index.refs_from import refs_from
from penstock_service.instance.instance import Instance
from penstock_service.repair.copy_portion import copy_portion
from penstock_service.repair.readmit_zones import readmit_zones
from penstock_service.segments.move_zone import change_zone

_REJOINED = "a whole pass over the index left nothing missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRecovery:
    """The work of one run, and how long it took.

    `readmitted` are the zones that it let back, `in_sync` those that it brought in sync. `behind` are the zones that
    are not in sync at its end, by what it knows.
    """

    readmitted: Sequence[str]
    in_sync: Sequence[str]
    behind: Sequence[str]
    has_ended_pass: bool
    progress: Progress
    duration_ms: float


def recover_zones(instance: Instance, budget_ms: float) -> ZoneRecovery:
    """One run: at most one pass, interrupted between two portions once `budget_ms` are over.

    If every zone is in sync, it costs one read. A zone that is out costs a put and a get. A pass costs what
    `copy_portion` costs. Raises what storage raises, and CORRUPT_SEGMENT if the index has a gap: no zone is called in
    sync by a damaged index. A run that meets another run ends without an error.
    """
    started_ms = instance.clock.monotonic_ms()
    readmitted = readmit_zones(instance)
    in_sync: list[str] = []
    progress, has_ended = Progress(), False
    try:
        current = _pass_under_way(instance)
        while current is not None and not has_ended and instance.clock.monotonic_ms() - started_ms < budget_ms:
            refs = refs_from(instance.stores, current.cursor, _is_after_pass(current))
            portion = list(islice(refs, CATCH_UP_PORTION_REFS))
            has_ended = not portion
            if has_ended:
                in_sync = _end_pass(instance, current)
            else:
                done = copy_portion(instance, current, [named for named, _ in portion])
                progress = progress.plus(done)
                current = _save(instance, current, advance(current, portion[-1][1], done))
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            raise
        instance.telemetry.count("recoveries_met")
    for name in ("refs", "segments", "bytes", "failures", "lost"):
        instance.telemetry.count(f"catch_up_{name}", getattr(progress, name))
    return ZoneRecovery(
        readmitted=readmitted,
        in_sync=in_sync,
        behind=_zones_behind(instance),
        has_ended_pass=has_ended,
        progress=progress,
        duration_ms=instance.clock.monotonic_ms() - started_ms,
    )


def _pass_under_way(instance: Instance) -> CatchUpPass | None:
    """The stored pass if it is for the zones that catch up now, else a new one; None if no zone does."""
    wanted = zones_catching_up(instance.zone_cache.read_through(), instance.stores.zone_names)
    if not wanted:
        return None
    stored = instance.stores.zone_states.get_pass()
    if stored is not None and stored.zones == wanted:
        return stored
    return _save(instance, stored, begin_pass(stored, wanted, instance.clock.now_ms()))


def _is_after_pass(current: CatchUpPass) -> Callable[[Ref], bool]:
    """Tells of a ref if it and all behind it were written after the pass began.

    The pass leaves them alone, so that it ends however fast appends come: the zone takes writes itself by then.
    """
    until_ms = current.began_ms + FUNCTION_MS_MAX  # a ref behind one of that age was put after the pass began

    def is_after(ref: Ref) -> bool:
        return ref.tier is not Tier.ARCHIVE and segment_time_ms(ref.segment_id) > until_ms

    return is_after


def _save(instance: Instance, old: CatchUpPass | None, new: CatchUpPass) -> CatchUpPass:
    instance.stores.zone_states.save_pass(old, new)
    return new


def _end_pass(instance: Instance, ended: CatchUpPass) -> list[str]:
    """Brings the zones in sync that the pass allows to be. The next run begins a new pass for the zones that are left.

    If a zone moves after this function has read its state, the change fails by the version of all states.
    """
    brought: list[str] = []
    for zone in zones_caught_up(ended, instance.zone_cache.read_through()):
        states = instance.zone_cache.read_through()
        if states.of(zone).version == ended.zones[zone]:
            reason = _REJOINED
            if ended.progress.lost:
                reason += f", but {ended.progress.lost} refs whose segments no zone has"
            change_zone(instance, states, zone, ZoneStatus.IN_SYNC, Mover.RECOVERY, reason)
            brought.append(zone)
    _save(instance, ended, begin_pass(ended, {}, instance.clock.now_ms()))
    instance.held_segments.begin(None)
    return brought


def _zones_behind(instance: Instance) -> list[str]:
    in_sync = instance.zone_cache.remembered.in_sync(instance.stores.zone_names)
    return [zone for index, zone in enumerate(instance.stores.zone_names) if not in_sync >> index & 1]
