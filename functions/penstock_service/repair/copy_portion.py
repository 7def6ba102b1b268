"""Copy a portion of the index's segments to zones that catch up, and note the new copies in the refs."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import CATCH_UP_COPIES_AT_ONCE
from penstock_core.log.ref import Tier
from penstock_core.log.repair import NamedRef
from penstock_core.zones.catch_up import CatchUpPass, Progress
from penstock_service.instance.instance import Instance
from penstock_service.repair.ensure_copies import ensure_copies
from penstock_service.repair.lost_segments import report_lost
from penstock_service.repair.repair_segment import marks_by_partition


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
