"""Recover zones: let those back that answer again, and catch them up until they are in sync. Runs each minute.

A pass goes over the whole index, topic by topic. It copies every segment that a zone of the pass does not hold,
whatever the refs' bits say: the zone's bucket may have been emptied or made anew while the zone was out. A pass may
take many runs, because each portion is saved with the cursor behind it.

A run may die anywhere, and two may run at once. They may then copy a segment or set a bit twice, which changes nothing.
If two save the same pass, one of them is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import or_

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, new_segment_id, segment_time_ms
from penstock_core.limits import CATCH_UP_COPIES_AT_ONCE, CATCH_UP_PORTION_REFS
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.repair import NamedRef
from penstock_core.log.segment import build_segment
from penstock_core.zones.zone_state import (
    FUNCTION_MS_MAX,
    CatchUpPass,
    Mover,
    Progress,
    ZoneStatus,
    advance,
    begin_pass,
    zones_catching_up,
    zones_caught_up,
)
from penstock_service.index.reader import refs_from
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import SegmentStore
from penstock_service.repair.ensure_copies import ensure_copies
from penstock_service.repair.repair_segment import marks_by_partition, report_lost
from penstock_service.segments.move_zone import change_zone, move_zone

_REJOINED = "a whole pass over the index left nothing missing"
_PROBE = build_segment([])  # a segment like any other, which no ref will ever name: the sweep removes it


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


def copy_portion(instance: Instance, current: CatchUpPass, portion: Sequence[NamedRef]) -> Progress:
    """Copies what the zones of the pass lack of the portion's segments, each once, and sets the bits that refs lack.

    Costs what `HeldSegments.lacking` and `ensure_copies` cost. Raises nothing: a segment that fails is counted.
    """
    passed = sum(1 << index for index, zone in enumerate(instance.stores.zone_names) if zone in current.zones)
    zones = passed & instance.stores.regular_zones  # a fallback that an operator lets back owes nothing
    named = _by_segment(portion)
    owed = _owed(instance, current, zones, named)

    def copy(segment_id: SegmentId) -> Progress:
        return _copy(instance, segment_id, owed[segment_id], named[segment_id])

    total = Progress(refs=len(portion))
    segments = [segment_id for segment_id in named if owed[segment_id]]
    for start in range(0, len(segments), CATCH_UP_COPIES_AT_ONCE):
        chunk = segments[start : start + CATCH_UP_COPIES_AT_ONCE]
        for segment_id, result in zip(chunk, instance.executor.map(copy, chunk), strict=True):
            if isinstance(result, PenstockError):
                instance.telemetry.log("catch_up_failed", segment=segment_id.hex(), error=str(result))
                total = total.plus(Progress(failures=len(named[segment_id])))
            else:
                total = total.plus(result)
    return total


def _by_segment(portion: Sequence[NamedRef]) -> dict[SegmentId, list[NamedRef]]:
    """The refs by segment, without those that lie in no zone."""
    by_segment: dict[SegmentId, list[NamedRef]] = {}
    for named in portion:
        if named.located.ref.tier is Tier.ZONAL:
            by_segment.setdefault(named.located.ref.segment_id, []).append(named)
    return by_segment


def _owed(
    instance: Instance, current: CatchUpPass, zones: int, named: Mapping[SegmentId, Sequence[NamedRef]]
) -> dict[SegmentId, int]:
    """The bitmap of zones that need a copy of each segment, or a look at the one that they have.

    A zone whose bit is missing in a ref owes a copy: `ensure_copies` reads the whole copy before the bit is set. A zone
    whose bit is set in all refs needs to have the copy, no more. The scrub finds copies that went bad.
    """
    unmarked = {
        segment_id: reduce(or_, (zones & ~each.located.ref.zones for each in refs))
        for segment_id, refs in named.items()
    }
    instance.held_segments.go_on((current.began_ms, *current.zones.items()))
    claimed = {segment_id: zones & ~bits for segment_id, bits in unmarked.items()}
    lacking = instance.held_segments.lacking(instance.stores.zones, instance.executor, claimed)
    return {segment_id: bits | lacking[segment_id] for segment_id, bits in unmarked.items()}


def _copy(instance: Instance, segment_id: SegmentId, zones: int, named: Sequence[NamedRef]) -> Progress:
    try:
        ensured = ensure_copies(instance.stores.zones, instance.executor, segment_id, zones)
    except PenstockError as error:
        if error.code is not ErrorCode.CORRUPT_SEGMENT:  # a zone that does not answer may have a good copy
            raise
        return Progress(lost=report_lost(instance, segment_id, named, error))
    unmarked = [(each, ensured.good) for each in named if ensured.good & ~each.located.ref.zones]
    for key, marks in marks_by_partition(unmarked).items():
        instance.stores.log.mark_stored(key, marks)
    if zones & ~ensured.good:
        raise PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE, "; ".join(error.message for error in ensured.errors) or "not copied"
        )
    made = (ensured.copied | ensured.healed).bit_count()
    return Progress(segments=made, bytes=ensured.bytes_read if made else 0)


def readmit_zones(instance: Instance) -> list[str]:
    """Moves the zones that are out of sync and answer a probe to catching_up, and gives their names.

    One read of the states; a put and a get for each zone that is out, and a move for each that answers. Raises what
    the moves raise.
    """
    states = instance.zone_cache.read_through()
    readmitted: list[str] = []
    for store in instance.stores.zones:
        if states.of(store.zone).status is not ZoneStatus.OUT_OF_SYNC or not _answers(instance, store):
            continue
        try:
            move_zone(instance, store.zone, ZoneStatus.CATCHING_UP, Mover.RECOVERY, "it can be written and read again")
        except PenstockError as error:
            if error.code is not ErrorCode.ZONE_STATE_CONFLICT:  # an operator took it out meanwhile
                raise
        else:
            readmitted.append(store.zone)
    return readmitted


def _answers(instance: Instance, store: SegmentStore) -> bool:
    """Puts a probe object and tells if it comes back as it was."""
    probe_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    try:
        store.put(probe_id, _PROBE.body, _PROBE.crc32c)
        return store.get(probe_id, 0, len(_PROBE.body)) == _PROBE.body
    except PenstockError as error:
        instance.telemetry.log("zone_probe_failed", zone=store.zone, error=str(error))
        return False
