"""Carry out one repair: good copies in the zones that owe one, then the bits in the refs. `replicate` calls this."""

from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.repair import NamedRef, Repair
from penstock_service.instance.instance import Instance
from penstock_service.repair.ensure_copies import ensure_copies
from penstock_service.repair.lost_segments import report_lost


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """The counts of one repair: copies made, copies healed, and refs whose bits were set."""

    copied: int = 0
    healed: int = 0
    marked: int = 0


def zones_to_repair(instance: Instance) -> int:
    """The bitmap of zones that should hold every segment. A zone that is out is caught up as a whole when it is back.

    Goes by the same states as writers do; costs a read if the instance remembers none.
    """
    return instance.zone_cache.get().written(instance.stores.zone_names) & instance.stores.regular_zones


def repair_segment(instance: Instance, repair: Repair) -> RepairResult:
    """Makes the copies and sets the bits.

    Costs what `ensure_copies` costs, and a `mark_stored` per ref; nothing if the zones are all out.

    If no zone has the segment any more, and retention or a deletion has removed all refs meanwhile, nothing is left to
    do. Raises STORAGE_UNAVAILABLE or CORRUPT_SEGMENT if a zone that is not out is left without a good copy, and what
    `mark_stored` raises. By then the rest of the work is done, and you may repeat the whole.
    """
    asked = sum(1 << index for index, zone in enumerate(instance.stores.zone_names) if zone in repair.zones)
    zones = asked & zones_to_repair(instance)
    if not zones:
        return RepairResult()
    try:
        copies = ensure_copies(instance.stores.zones, instance.executor, repair.segment_id, zones)
    except PenstockError as error:
        is_lost = error.code is ErrorCode.CORRUPT_SEGMENT and bool(repair.refs)
        if is_lost and not report_lost(instance, repair.segment_id, repair.refs, error):
            return RepairResult()
        raise

    def mark(named: NamedRef) -> bool:
        return instance.stores.log.mark_stored(named.key, named.located, copies.good)

    instance.telemetry.count("segments_copied", copies.copied.bit_count())
    instance.telemetry.count("segments_healed", copies.healed.bit_count())
    marked = instance.executor.map(mark, repair.refs).all_ok() if copies.good else []
    if copies.good != zones:
        raise PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE,
            f"segment {repair.segment_id.hex()} is not in every zone that is to hold it: "
            + "; ".join(error.message for error in copies.errors),
        )
    return RepairResult(copied=copies.copied.bit_count(), healed=copies.healed.bit_count(), marked=sum(marked))
