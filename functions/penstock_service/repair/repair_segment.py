"""Carry out one repair: good copies in the zones that owe one, then the bits in the refs. `replicate` calls this.

Tell operators of a segment that is lost: every zone was asked for it, and none has a good copy.

Zone recovery, the scrub and a repair call this when they meet one. It changes nothing. An operator decides what happens
of the records (docs/how-to/operate.md).

Look at ranges that lacked a zone's bit some seconds ago, and repair what is missing still (docs/protocol/zones).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.log.ref import LocatedRef
from penstock_core.log.repair import Look, NamedRef, OwedRange, Repair, looks_due, repairs_due
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.repair.ensure_copies import ensure_copies


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """The counts of one repair: copies made, copies healed, and refs whose bits were set."""

    copied: int = 0
    healed: int = 0
    marked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedCopies:
    """A segment whose copies in the zones `good` were found or made good. Its `refs` are to get these bits.

    `error` tells of a zone that is to hold the segment and has no good copy.
    """

    refs: tuple[NamedRef, ...] = ()
    good: int = 0
    copied: int = 0
    healed: int = 0
    error: PenstockError | None = None

    @property
    def marks(self) -> list[tuple[NamedRef, int]]:
        """Each ref with the bits that it is to get."""
        return [(named, self.good) for named in self.refs] if self.good else []


def zones_to_repair(instance: Instance) -> int:
    """The bitmap of zones that should hold every segment. A zone that is out is caught up as a whole when it is back.

    Goes by the same states as writers do; costs a read if the instance remembers none.
    """
    return instance.zone_cache.get().written(instance.stores.zone_names) & instance.stores.regular_zones


def repair_segment(instance: Instance, repair: Repair) -> RepairResult:
    """Makes the copies and sets the bits.

    Costs what `repair_copies` costs, and a `mark_stored` for each partition. Raises what these raise, and
    STORAGE_UNAVAILABLE if a zone that is not out is left without a good copy. By then the rest of the work is done,
    and you may repeat the whole.
    """
    copies = repair_copies(instance, repair)
    marks = marks_by_partition(copies.marks)
    marked = instance.executor.map(lambda key: instance.stores.log.mark_stored(key, marks[key]), [*marks]).all_ok()
    if copies.error is not None:
        raise copies.error
    return RepairResult(copied=copies.copied, healed=copies.healed, marked=sum(marked))


def repair_copies(instance: Instance, repair: Repair) -> RepairedCopies:
    """Makes the copies, and sets no bits.

    Costs what `ensure_copies` costs; nothing if the zones are all out. If no zone has the segment any more, and
    retention or a deletion has removed all refs meanwhile, nothing is left to do, and no ref is returned. Raises
    CORRUPT_SEGMENT and STORAGE_UNAVAILABLE as `ensure_copies` does.
    """
    asked = sum(1 << index for index, zone in enumerate(instance.stores.zone_names) if zone in repair.zones)
    zones = asked & zones_to_repair(instance)
    if not zones:
        return RepairedCopies()
    try:
        copies = ensure_copies(instance.stores.zones, instance.executor, repair.segment_id, zones)
    except PenstockError as error:
        is_lost = error.code is ErrorCode.CORRUPT_SEGMENT and bool(repair.refs)
        if is_lost and not report_lost(instance, repair.segment_id, repair.refs, error):
            return RepairedCopies()
        raise
    instance.telemetry.count("segments_copied", copies.copied.bit_count())
    instance.telemetry.count("segments_healed", copies.healed.bit_count())
    reasons = "; ".join(error.message for error in copies.errors)
    return RepairedCopies(
        refs=repair.refs,
        good=copies.good,
        copied=copies.copied.bit_count(),
        healed=copies.healed.bit_count(),
        error=None
        if copies.good == zones
        else PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE,
            f"segment {repair.segment_id.hex()} is not in every zone that is to hold it: {reasons}",
        ),
    )


def marks_by_partition(marks: Iterable[tuple[NamedRef, int]]) -> dict[PartitionKey, dict[LocatedRef, int]]:
    """The bits that refs are to get, as `mark_stored` takes them for each partition."""
    found: dict[PartitionKey, dict[LocatedRef, int]] = {}
    for named, zones in marks:
        found.setdefault(named.key, {})[named.located] = zones
    return found


def report_lost(instance: Instance, segment_id: SegmentId, refs: Sequence[NamedRef], error: PenstockError) -> int:
    """Logs each of the refs that is still there, with its partition and offsets, and counts them.

    A ref that retention or a deletion has removed meanwhile has lost nothing. Costs a look at the index for each ref,
    and a read of the topics if any ref is there. Raises what these reads raise.
    """
    standing = [named for named in refs if _stands(instance.stores.log, named)]
    if standing:  # a deletion that died leaves heads behind, so the topics decide, as they do for the sweep
        topic_ids = {topic.topic_id for topic in instance.stores.topics.list()}
        standing = [named for named in standing if named.key.topic_id in topic_ids]
    for named in standing:
        instance.telemetry.log(
            "segment_lost",
            segment=segment_id.hex(),
            partition=str(named.key),
            base_offset=named.located.base_offset,
            end_offset=named.located.end_offset,
            error=str(error),
        )
    return len(standing)


def _stands(log: LogIndex, named: NamedRef) -> bool:
    found = next(refs_of(log, named.key, named.located.base_offset), None)
    return found is not None and found.ref.segment_id == named.located.ref.segment_id


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
