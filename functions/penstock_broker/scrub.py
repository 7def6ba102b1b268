"""Scrub: read every copy of every segment that the index names, heal what is missing or bad, set bits that are owed.

It goes over the index in the order of topic names and partitions, a part with each run, and goes on from a stored
cursor. It may die anywhere, be repeated, and run twice at once, as what it does to copies and refs may; a cursor that
is lost or old costs reading again. What it cannot heal it hands to the repair queue, whose dead letters ring, and what
no zone has it tells of at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock_broker.broker import Broker
from penstock_broker.ensure_copies import ensure_copies
from penstock_broker.lost_segments import report_lost
from penstock_broker.read_range import is_missing, read_range
from penstock_broker.repair_segment import zones_to_repair
from penstock_broker.walk_index import refs_of
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.keys import PartitionKey
from penstock_core.read_plan import join_ranges
from penstock_core.ref import Ref, Tier
from penstock_core.repair import NamedRef, Repair
from penstock_core.segment import TocEntry

JOB = "scrub"
_SAVE_REFS = 64  # refs between two saves of the cursor


class _Cursor(NamedTuple):
    """Where to go on: everything before it has been read."""

    topic: str = ""
    partition: int = 0
    offset: int = 0


@dataclass(slots=True, kw_only=True)
class Scrubbed:
    """What one run did. `failures` are refs whose segment is not whole in every zone that is to hold it, or does not
    say of itself what they say; `is_finished` if the run came to the end of the index."""

    refs: int = 0
    segments: int = 0
    bytes: int = 0
    copied: int = 0
    healed: int = 0
    marked: int = 0
    failures: int = 0
    is_finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What is known of a segment in this run."""

    good: int
    toc: tuple[TocEntry, ...]
    is_whole: bool


def scrub(broker: Broker, *, budget_ms: float, budget_bytes: int) -> Scrubbed:
    """One run, ended when the time is over or that many bytes were read, after one ref at least.

    One get per segment and zone that is not out, and what there is to repair. Raises what reading the index raises.
    """
    deadline_ms = broker.clock.monotonic_ms() + budget_ms
    done = Scrubbed()
    known: dict[SegmentId, _Checked] = {}
    for named, behind in _refs_from(broker, _parse_cursor(broker.cursors.get(JOB))):
        _scrub_named(broker, named, known, done)
        is_over = done.bytes >= budget_bytes or broker.clock.monotonic_ms() >= deadline_ms
        if is_over or done.refs % _SAVE_REFS == 0:
            broker.cursors.put(JOB, f"{behind.topic}#{behind.partition}#{behind.offset}")
        if is_over:
            return done
    broker.cursors.clear(JOB)
    done.is_finished = True
    return done


def scrub_segment(broker: Broker, refs: Iterable[NamedRef], done: Scrubbed) -> None:
    """The same for one segment and refs that name it, all at once: for who has brought them together. Counts in `done`;
    what cannot be healed is handed over and counted."""
    known: dict[SegmentId, _Checked] = {}
    for named in refs:
        _scrub_named(broker, named, known, done)


def _scrub_named(broker: Broker, named: NamedRef, known: dict[SegmentId, _Checked], done: Scrubbed) -> None:
    (_scrub_ref if named.located.ref.tier is Tier.ZONAL else _scrub_archived)(broker, named, known, done)
    done.refs += 1


def _scrub_ref(broker: Broker, named: NamedRef, known: dict[SegmentId, _Checked], done: Scrubbed) -> None:
    ref = named.located.ref
    zones = zones_to_repair(broker)
    if ref.segment_id not in known:
        known[ref.segment_id] = _check(broker, named, zones, done)
    checked = known[ref.segment_id]
    is_as_named = not checked.toc or _names(checked.toc, named.key, ref)
    if not checked.is_whole or not is_as_named:
        done.failures += 1
    if not is_as_named:
        broker.events.tell("ref_not_in_segment", partition=str(named.key), segment=ref.segment_id.hex())
        return
    if checked.good & ~ref.zones:
        try:
            done.marked += broker.log.mark_stored(named.key, named.located, checked.good)
        except PenstockError as error:
            done.failures += 1
            broker.events.tell("scrub_failed", segment=ref.segment_id.hex(), error=str(error))


def _scrub_archived(broker: Broker, named: NamedRef, known: dict[SegmentId, _Checked], done: Scrubbed) -> None:
    """Reads what the ref names. The archive is S3's own three copies, and there is no other to heal from."""
    ref = named.located.ref
    if ref.segment_id not in known:
        known[ref.segment_id] = _Checked(good=0, toc=(), is_whole=True)
        done.segments += 1
    try:
        [wanted] = join_ranges([named.located])
        done.bytes += len(read_range(broker, wanted))
    except PenstockError as error:
        is_gone = error.code is ErrorCode.CORRUPT_SEGMENT or is_missing(error)
        if is_gone and not report_lost(broker, ref.segment_id, [named], error):
            return  # removed since its ref was read
        done.failures += 1
        broker.events.tell("scrub_failed", segment=ref.segment_id.hex(), error=str(error))


def _check(broker: Broker, named: NamedRef, zones: int, done: Scrubbed) -> _Checked:
    segment_id = named.located.ref.segment_id
    done.segments += 1
    try:
        copies = ensure_copies(broker, segment_id, zones)
    except PenstockError as error:
        is_nowhere = error.code is ErrorCode.CORRUPT_SEGMENT
        if is_nowhere and not report_lost(broker, segment_id, [named], error):
            return _Checked(good=0, toc=(), is_whole=True)  # removed since its ref was read
        _hand_over(broker, segment_id, zones, str(error))
        return _Checked(good=0, toc=(), is_whole=False)
    done.bytes += copies.bytes_read
    done.copied += copies.copied.bit_count()
    done.healed += copies.healed.bit_count()
    if copies.good != zones:
        _hand_over(broker, segment_id, zones & ~copies.good, "; ".join(error.message for error in copies.errors))
    return _Checked(good=copies.good, toc=copies.toc, is_whole=copies.good == zones)


def _hand_over(broker: Broker, segment_id: SegmentId, zones: int, error: str) -> None:
    broker.events.tell("scrub_failed", segment=segment_id.hex(), error=error)
    names: frozenset[ZoneName] = frozenset(zone for index, zone in enumerate(broker.zone_names) if zones >> index & 1)
    try:
        broker.repair_queue.send(Repair(segment_id=segment_id, zones=names))
    except PenstockError as refused:
        broker.events.tell("scrub_failed", segment=segment_id.hex(), error=str(refused))


def _names(toc: tuple[TocEntry, ...], key: PartitionKey, ref: Ref) -> bool:
    """Whether the segment holds what the ref says, where it says it, for the ref's partition."""
    return any(
        (entry.topic_id, entry.partition) == key
        and (entry.position, entry.length, entry.offset_span) == (ref.position, ref.length, ref.offset_span)
        for entry in toc
    )


def _refs_from(broker: Broker, cursor: _Cursor) -> Iterator[tuple[NamedRef, _Cursor]]:
    """Every ref of the index from the cursor on, each with the cursor behind it."""
    for topic in broker.topics.list():
        for partition in topic.all_partitions():
            if (topic.name, partition) < (cursor.topic, cursor.partition):
                continue
            key = PartitionKey(topic.topic_id, partition)
            offset = cursor.offset if (topic.name, partition) == (cursor.topic, cursor.partition) else 0
            for located in refs_of(broker, key, offset):
                yield NamedRef(key=key, located=located), _Cursor(topic.name, partition, located.end_offset)


def _parse_cursor(text: str | None) -> _Cursor:
    if text is None:
        return _Cursor()
    topic, partition, offset = text.split("#")
    return _Cursor(topic, int(partition), int(offset))
