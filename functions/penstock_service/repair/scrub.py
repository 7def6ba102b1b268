"""Scrub: read every copy of every segment that the index names, heal bad and missing copies, and set the bits owed.

A run goes over a part of the index, in the order of topic names and partitions, and the next run goes on from a stored
cursor. A run may die anywhere, be repeated, and meet another run, because its work on copies and refs may be done
twice. If the cursor is lost or old, the next run reads some copies again.

If the scrub cannot heal a copy, it hands the segment to the repair queue, whose dead letters raise an alarm. If no zone
has a segment, it logs that at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SegmentId, TopicId, TopicName, ZoneName
from penstock_core.limits import SCRUB_SAVE_REFS
from penstock_core.log.read_plan import join_ranges
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.repair import NamedRef, Repair
from penstock_core.log.segment import TocEntry
from penstock_core.log.topic import Topic
from penstock_core.zones.zone_state import START, Cursor
from penstock_service.index.reader import refs_from
from penstock_service.instance.instance import Instance
from penstock_service.repair.ensure_copies import ensure_copies
from penstock_service.repair.repair_segment import report_lost, zones_to_repair
from penstock_service.segments.read_range import is_expired, is_missing, read_range
from penstock_service.segments.read_refs import is_gap

JOB = "scrub"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubResult:
    """The counts of one run.

    `failures` counts refs whose segment is not whole in every zone that should hold it, or whose segment's table of
    contents contradicts them. `is_finished`: the run came to the end of the index.
    """

    refs: int = 0
    segments: int = 0
    bytes: int = 0
    copied: int = 0
    healed: int = 0
    marked: int = 0
    failures: int = 0
    is_finished: bool = False

    def plus(self, other: "ScrubResult") -> "ScrubResult":
        """The sum of both; finished as `other` is."""
        return ScrubResult(
            refs=self.refs + other.refs,
            segments=self.segments + other.segments,
            bytes=self.bytes + other.bytes,
            copied=self.copied + other.copied,
            healed=self.healed + other.healed,
            marked=self.marked + other.marked,
            failures=self.failures + other.failures,
            is_finished=other.is_finished,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentVerdict:
    """One segment as this run found it: its good copies, and whether every zone that should hold it has one."""

    good: int = 0
    toc: tuple[TocEntry, ...] = ()
    is_whole: bool = True


@dataclass(slots=True)
class ScrubRun:
    """What a run remembers of the segments that it has met, and the names of topics once it has needed them."""

    verdicts: dict[SegmentId, _SegmentVerdict] = field(default_factory=dict)
    names: Mapping[TopicId, TopicName] | None = None


def scrub(instance: Instance, *, budget_ms: float, budget_bytes: int) -> ScrubResult:
    """One run. It ends when the time is over or that many bytes are read, after one ref at least.

    One get per segment and zone that is not out, and what `ensure_copies` costs on top. Raises what reading the
    index raises.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    total = ScrubResult()
    scrub_run = ScrubRun()
    for named, behind in refs_from(instance.stores, _parse_cursor(instance.stores.cursors.get(JOB))):
        total = total.plus(_scrub_named(instance, named, scrub_run))
        is_over = total.bytes >= budget_bytes or instance.clock.monotonic_ms() >= deadline_ms
        if is_over or total.refs % SCRUB_SAVE_REFS == 0:
            instance.stores.cursors.put(JOB, f"{behind.topic}#{behind.partition}#{behind.offset}")
        if is_over:
            return total
    instance.stores.cursors.clear(JOB)
    return replace(total, is_finished=True)


def scrub_segment(instance: Instance, refs: Iterable[NamedRef], scrub_run: ScrubRun) -> ScrubResult:
    """The same for one segment and all refs that name it. A copy that cannot be healed is handed over and counted.

    The run keeps nothing of the segments before.
    """
    total = ScrubResult()
    scrub_run.verdicts.clear()
    for named in refs:
        total = total.plus(_scrub_named(instance, named, scrub_run))
    return total


def _scrub_named(instance: Instance, named: NamedRef, scrub_run: ScrubRun) -> ScrubResult:
    scrub_ref = _scrub_zonal if named.located.ref.tier is Tier.ZONAL else _scrub_single
    return ScrubResult(refs=1).plus(scrub_ref(instance, named, scrub_run))


def _scrub_zonal(instance: Instance, named: NamedRef, scrub_run: ScrubRun) -> ScrubResult:
    ref = named.located.ref
    result, verdicts = ScrubResult(), scrub_run.verdicts
    if ref.segment_id not in verdicts:
        verdicts[ref.segment_id], result = _check(instance, named, zones_to_repair(instance))
    verdict = verdicts[ref.segment_id]
    is_as_named = not verdict.toc or _names(verdict.toc, named.key, ref)
    if not verdict.is_whole or not is_as_named:
        result = replace(result, failures=result.failures + 1)
    if not is_as_named:
        instance.telemetry.log("ref_not_in_segment", partition=str(named.key), segment=ref.segment_id.hex())
        return result
    return result.plus(_mark(instance, named, verdict)) if verdict.good & ~ref.zones else result


def _mark(instance: Instance, named: NamedRef, verdict: _SegmentVerdict) -> ScrubResult:
    try:
        return ScrubResult(marked=instance.stores.log.mark_stored(named.key, {named.located: verdict.good}))
    except PenstockError as error:
        instance.telemetry.log("scrub_failed", segment=named.located.ref.segment_id.hex(), error=str(error))
        return ScrubResult(failures=1)


def _scrub_single(instance: Instance, named: NamedRef, scrub_run: ScrubRun) -> ScrubResult:
    """Reads the bytes that the ref names. S3 and DynamoDB keep three copies each: there is none to heal from."""
    ref = named.located.ref
    result = ScrubResult(segments=int(ref.segment_id not in scrub_run.verdicts))
    scrub_run.verdicts[ref.segment_id] = _SegmentVerdict()
    try:
        [wanted] = join_ranges([named.located])
        return replace(result, bytes=len(read_range(instance, wanted)))
    except PenstockError as error:
        is_gone = error.code is ErrorCode.CORRUPT_SEGMENT or is_missing(error)
        if is_expired(error) and is_gap(instance, _topic_of(instance, named, scrub_run), named.located, error):
            return result  # retention is to remove the ref
        if is_gone and not report_lost(instance, ref.segment_id, [named], error):
            return result  # removed since its ref was read
        instance.telemetry.log("scrub_failed", segment=ref.segment_id.hex(), error=str(error))
        return replace(result, failures=1)


def _topic_of(instance: Instance, named: NamedRef, scrub_run: ScrubRun) -> Topic | None:
    """The ref's topic, some seconds old at most; None if it was deleted.

    Costs a read of all topics once a run, and a read of the topic where the instance does not remember it.
    """
    if scrub_run.names is None:
        scrub_run.names = {each.topic_id: each.name for each in instance.stores.topics.list()}
    name = scrub_run.names.get(named.key.topic_id)
    topic = None if name is None else instance.topic_cache.find(name)
    return topic if topic is not None and topic.topic_id == named.key.topic_id else None


def _check(instance: Instance, named: NamedRef, zones: int) -> tuple[_SegmentVerdict, ScrubResult]:
    """Reads and heals the copies of a segment that this run meets for the first time."""
    segment_id = named.located.ref.segment_id
    try:
        copies = ensure_copies(instance.stores.zones, instance.executor, segment_id, zones)
    except PenstockError as error:
        is_nowhere = error.code is ErrorCode.CORRUPT_SEGMENT
        is_removed = is_nowhere and not report_lost(instance, segment_id, [named], error)  # since its ref was read
        if not is_removed:
            _hand_over(instance, segment_id, zones, str(error))
        return _SegmentVerdict(is_whole=is_removed), ScrubResult(segments=1)
    is_whole = copies.good == zones
    if not is_whole:
        _hand_over(instance, segment_id, zones & ~copies.good, "; ".join(error.message for error in copies.errors))
    return _SegmentVerdict(good=copies.good, toc=copies.toc, is_whole=is_whole), ScrubResult(
        segments=1,
        bytes=copies.bytes_read,
        copied=copies.copied.bit_count(),
        healed=copies.healed.bit_count(),
    )


def _hand_over(instance: Instance, segment_id: SegmentId, zones: int, error: str) -> None:
    """Logs the error and sends the segment to the repair queue."""
    instance.telemetry.log("scrub_failed", segment=segment_id.hex(), error=error)
    names: frozenset[ZoneName] = frozenset(
        zone for index, zone in enumerate(instance.stores.zone_names) if zones >> index & 1
    )
    try:
        instance.stores.repair_queue.send(Repair(segment_id=segment_id, zones=names))
    except PenstockError as refused:
        instance.telemetry.log("scrub_failed", segment=segment_id.hex(), error=str(refused))


def _names(toc: tuple[TocEntry, ...], key: PartitionKey, ref: Ref) -> bool:
    """Tells if the segment's table of contents has the ref's partition, place and offsets."""
    return any(
        (entry.topic_id, entry.partition) == key
        and (entry.position, entry.length, entry.offset_span) == (ref.position, ref.length, ref.offset_span)
        for entry in toc
    )


def _parse_cursor(text: str | None) -> Cursor:
    if text is None:
        return START
    topic, partition, offset = text.split("#")
    return Cursor(topic, int(partition), int(offset))
