"""Look at ranges that lacked a zone's bit some seconds ago, and repair what is missing still (docs/protocol/zones)."""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.log.repair import Look, NamedRef, OwedRange, Repair, looks_due, repairs_due
from penstock_service.index.refs import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.repair.repair_segment import RepairedCopies, marks_by_partition, repair_copies, zones_to_repair


def repair_owed(instance: Instance, look: Look, deadline_ms: float) -> None:
    """Repairs each segment that a ref of the ranges names without a bit, wherever a roll has moved the ref.

    One segment after the other is read whole. Then one write sets the bits of all refs of a tail, or of a page. A
    repair that fails goes to the repair queue. After `deadline_ms` of the monotonic clock, the rest goes there as
    another look; one segment comes first in any case.

    Costs what `refs_of` costs for each range, what `repair_copies` costs for each segment, and a `mark_stored` for each
    partition. Raises what `refs_of` and the queue raise; you may repeat the whole.
    """
    wanted = zones_to_repair(instance)
    refs = [named for each in look.ranges for named in _refs_in(instance, each)] if wanted else []
    repairs = repairs_due(refs, instance.stores.zone_names, wanted)
    done: list[tuple[Repair, RepairedCopies]] = []
    for number, repair in enumerate(repairs):
        if number and instance.clock.monotonic_ms() >= deadline_ms:
            for rest in looks_due(named for each in repairs[number:] for named in each.refs):
                instance.stores.repair_queue.send(rest)
            break
        copies = _copies(instance, repair)
        if copies is not None:
            done.append((repair, copies))
    _mark(instance, done)


def _refs_in(instance: Instance, owed: OwedRange) -> list[NamedRef]:
    found: list[NamedRef] = []
    for located in refs_of(instance.stores.log, owed.key, owed.start_offset):
        if located.base_offset >= owed.end_offset:
            break
        found.append(NamedRef(key=owed.key, located=located))
    return found


def _copies(instance: Instance, repair: Repair) -> RepairedCopies | None:
    """The copies that the repair has made. It is handed over if a zone is left without one; None if all are."""
    try:
        copies = repair_copies(instance, repair)
    except PenstockError as error:
        _postpone(instance, repair, error)
        return None
    if copies.error is not None:
        _postpone(instance, repair, copies.error)
    return copies


def _mark(instance: Instance, done: Sequence[tuple[Repair, RepairedCopies]]) -> None:
    """Sets the bits. Where that fails, the queue brings the repairs of the partition again, one by one."""
    for key, marks in marks_by_partition(mark for _, copies in done for mark in copies.marks).items():
        try:
            instance.stores.log.mark_stored(key, marks)
        except PenstockError as error:
            for repair, copies in done:
                if copies.error is None and any(named.key == key for named in repair.refs):
                    _postpone(instance, repair, error)


def _postpone(instance: Instance, repair: Repair, error: PenstockError) -> None:
    instance.telemetry.log("repair_postponed", segment=repair.segment_id.hex(), error=str(error))
    instance.stores.repair_queue.send(repair)
