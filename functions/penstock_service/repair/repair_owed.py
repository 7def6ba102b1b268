"""Look at ranges that lacked a zone's bit some seconds ago, and repair what is still missing there (docs/adr/0028)."""

from penstock_core.errors import PenstockError
from penstock_core.log.repair import Look, NamedRef, OwedRange, Repair, looks_due, repairs_due
from penstock_service.index.refs_of import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.repair.repair_segment import repair_segment, zones_to_repair


def repair_owed(instance: Instance, look: Look, deadline_ms: float) -> None:
    """Repairs each segment that a ref of the ranges names without a bit, wherever a roll has moved the ref.

    One segment after the other, because their refs often share a page, and two marks of one page are in each other's
    way. A repair that fails goes to the repair queue. After `deadline_ms` of the monotonic clock, the rest goes there
    as another look; one segment comes first in any case.

    Costs what `refs_of` costs for each range, and what `repair_segment` costs for each segment. Raises what `refs_of`
    and the queue raise; you may repeat the whole.
    """
    wanted = zones_to_repair(instance)
    refs = [named for each in look.ranges for named in _refs_in(instance, each)] if wanted else []
    repairs = repairs_due(refs, instance.stores.zone_names, wanted)
    for number, repair in enumerate(repairs):
        if number and instance.clock.monotonic_ms() >= deadline_ms:
            for rest in looks_due(named for each in repairs[number:] for named in each.refs):
                instance.stores.repair_queue.send(rest)
            return
        _repair(instance, repair)


def _refs_in(instance: Instance, owed: OwedRange) -> list[NamedRef]:
    found: list[NamedRef] = []
    for located in refs_of(instance.stores.log, owed.key, owed.start_offset):
        if located.base_offset >= owed.end_offset:
            break
        found.append(NamedRef(key=owed.key, located=located))
    return found


def _repair(instance: Instance, repair: Repair) -> None:
    """Makes the repair, or hands it over if it fails."""
    try:
        repair_segment(instance, repair)
    except PenstockError as error:
        instance.telemetry.log("repair_postponed", segment=repair.segment_id.hex(), error=str(error))
        instance.stores.repair_queue.send(repair)
