"""Look at ranges that lacked a zone's bit some seconds ago, and repair what is still missing there (docs/adr/0028)."""

from penstock_core.errors import PenstockError
from penstock_core.limits import CATCH_UP_COPIES_AT_ONCE
from penstock_core.log.repair import Look, NamedRef, OwedRange, Repair, looks_due, repairs_due
from penstock_service.index.refs_of import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.repair.repair_segment import repair_segment, zones_to_repair


def repair_owed(instance: Instance, look: Look, deadline_ms: float) -> None:
    """Repairs each segment that a ref of the ranges names without a bit, wherever a roll has moved the ref.

    A repair that fails goes to the repair queue. After `deadline_ms` of the monotonic clock, the rest goes there as
    another look; some segments come first in any case.

    Costs what `refs_of` costs for each range, and what `repair_segment` costs for each segment. Raises what `refs_of`
    and the queue raise; you may repeat the whole.
    """
    wanted = zones_to_repair(instance)
    refs = [named for each in look.ranges for named in _refs_in(instance, each)] if wanted else []
    repairs = repairs_due(refs, instance.stores.zone_names, wanted)
    for start in range(0, len(repairs), CATCH_UP_COPIES_AT_ONCE):
        if start and instance.clock.monotonic_ms() >= deadline_ms:
            for rest in looks_due(named for repair in repairs[start:] for named in repair.refs):
                instance.stores.repair_queue.send(rest)
            return
        _repair(instance, repairs[start : start + CATCH_UP_COPIES_AT_ONCE])


def _refs_in(instance: Instance, owed: OwedRange) -> list[NamedRef]:
    found: list[NamedRef] = []
    for located in refs_of(instance.stores.log, owed.key, owed.start_offset):
        if located.base_offset >= owed.end_offset:
            break
        found.append(NamedRef(key=owed.key, located=located))
    return found


def _repair(instance: Instance, repairs: list[Repair]) -> None:
    """Makes repairs side by side, and hands over those that fail."""
    outcomes = instance.executor.map(lambda repair: repair_segment(instance, repair), repairs)
    for repair, outcome in zip(repairs, outcomes, strict=True):
        if isinstance(outcome, PenstockError):
            instance.telemetry.log("repair_postponed", segment=repair.segment_id.hex(), error=str(outcome))
            instance.stores.repair_queue.send(repair)
