"""Mark: find the segments that live refs name, one partition after the other. The sweep spares them (sweep.py).

The mark misses no live segment, for these reasons:

1. The head is read before the pages. A ref that is in the tail then is seen there. A ref that has left the tail by then
   is in a page, and pages are read later.
2. A swap may take refs out of pages meanwhile. It notes the segments that it retires, and these are read last.
3. Timers are read before the head, by an index that is read before them. A segment that a timer named when the index
   was read is found there, or, if the timer was promoted meanwhile, in the head or a page (docs/adr/0039).
4. If the pages have a gap, retention has deleted pages, or the index is damaged. In the first case the mark begins
   again with a newer head; marks made before stay. In the second it raises, and nothing is swept.

The marks of a sweep that takes several runs: ids of live segments, in objects of the archive, by folder of keys.

```
 folders: u32, CRC-32C of the table: u32 | folders x (number: u32, ids: u32, CRC-32C of the ids: u32) | ids
                                                                                                   16 bytes each
```
The folders are those of one `KeyLayout`, by ascending number, and the ids of a folder ascend. A store with directory
buckets has two objects for the same ids: one by the hour for the zones, and one by the two digits for the archive.

An object of marks has the key of a segment that no ref names. It is younger than the cutoff of its own sweep, so that
sweep leaves it. A later sweep removes it, if the sweep that made it never came to its end.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from threading import Lock

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, PartitionKey, SegmentId, new_segment_id, segment_time_ms
from penstock_core.limits import INDEX_MARK_PAGES, TIMER_MS_MAX, TIMERS_READ_MAX
from penstock_core.log.index import Head, safe_log_start
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.timer import MINUTE_MS, PlaceRange
from penstock_core.log.topic import Topic
from penstock_core.storage.keys import KeyLayout, folder_number
from penstock_service.index.heads import waiting_timers
from penstock_service.index.reader import head_past_gap, pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ArchiveStore

_HEADER = Struct(">II")
_ENTRY = Struct(">III")


@dataclass(slots=True)
class LiveSegments:
    """The live segments that were marked. Threads may add at the same time. An id takes about 110 bytes.

    Segments from `cutoff_ms` on are spared by their age, and those older than `since_ms` are left as foreign, so
    neither kind is kept here. `count` counts those that were kept, also if the caller has taken them out since. With
    `expiring`, it has those of `ids` that are items with a TTL: they may be gone, and no zone has to hold them.
    """

    since_ms: int
    cutoff_ms: int
    ids: set[SegmentId] = field(default_factory=set)
    expiring: set[SegmentId] | None = None
    count: int = 0
    due: "DueTimers | None" = None
    _lock: Lock = field(default_factory=Lock)

    def add(self, segment_ids: Iterable[SegmentId]) -> None:
        """Keeps the segments that are ours."""
        with self._lock:
            before = len(self.ids)
            self.ids.update(each for each in segment_ids if self.is_ours(each))
            self.count += len(self.ids) - before

    def add_refs(self, refs: Iterable[Ref]) -> None:
        """Keeps the segments of the refs that are ours."""
        found = {each.segment_id: each.tier for each in refs}
        self.add(found)
        if self.expiring is not None:
            ours = [each for each, tier in found.items() if tier is Tier.EXPIRING and self.is_ours(each)]
            with self._lock:
                self.expiring.update(ours)

    def is_ours(self, segment_id: SegmentId) -> bool:
        """Tells if this sweep decides about the segment."""
        return self.since_ms <= segment_time_ms(segment_id) < self.cutoff_ms

    def is_foreign(self, segment_id: SegmentId) -> bool:
        """Tells if the segment is older than everything that the index has ever known."""
        return segment_time_ms(segment_id) < min(self.since_ms, self.cutoff_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimers:
    """Where timers that wait are found: from the first due minute of a partition on, or from `read_ms` on.

    `has_any` is false in a stage that never had a timer.
    """

    has_any: bool
    read_ms: int
    first_ms: Mapping[PartitionKey, int] = field(default_factory=dict)


def mark_portion(
    instance: Instance, topic: Topic, keys: Sequence[PartitionKey], live: LiveSegments, log_start_grace_ms: int
) -> None:
    """Adds the segments that the refs of these partitions name, 100 partitions of the topic at most.

    This, `_mark_timers` and `_mark_refs` are the one place that says what is live. If a further kind of refs moves to
    the tail, add its segments before the heads are read here. Then a ref that has moved by the time of that read is in
    the tail or in a page. A ref that comes after it names a segment that its age spares.

    One read of heads, and a query for each 500 pages. If the stage has had timers, 8 queries for each partition and for
    each 900 of its timers, and 17 reads for the first portion. Raises what reading the index raises, and
    CORRUPT_SEGMENT if it is damaged.
    """
    live.due = live.due or _due_timers(instance)
    if live.due.has_any:
        instance.executor.map(lambda key: _mark_timers(instance, key, live), keys).all_ok()
    heads = instance.stores.log.heads(keys)  # 3: after the timers
    if len(heads) < len(keys):
        _check_deleted(instance, topic)
    instance.executor.map(
        lambda key: _mark_partition(instance, key, heads[key], live, log_start_grace_ms),
        [key for key in keys if key in heads],
    ).all_ok()


def _due_timers(instance: Instance) -> DueTimers:
    """The index of due minutes up to now. A timer that waits and is due has its minute there."""
    timers, now_ms = instance.stores.timers, instance.clock.now_ms()
    if timers.switched_on_ms() is None:
        return DueTimers(has_any=False, read_ms=now_ms)
    first_ms: dict[PartitionKey, int] = {}
    for minute in timers.due_minutes(now_ms // MINUTE_MS + 1):
        first_ms.setdefault(minute.key, minute.start_ms)
    return DueTimers(has_any=True, read_ms=now_ms, first_ms=first_ms)


def _mark_timers(instance: Instance, key: PartitionKey, live: LiveSegments) -> None:
    due = live.due or _due_timers(instance)
    start_ms, after = due.first_ms.get(key, due.read_ms), None
    while found := waiting_timers(instance, key, PlaceRange(start_ms, TIMER_MS_MAX, after), TIMERS_READ_MAX):
        live.add(timer.ref.segment_id for timer in found)
        after = found[-1].place


def _mark_partition(
    instance: Instance, key: PartitionKey, head: Head | None, live: LiveSegments, log_start_grace_ms: int
) -> None:
    while head is not None:
        try:
            _mark_refs(instance, key, head, live, log_start_grace_ms)
        except PenstockError as error:
            head = head_past_gap(instance.stores.log, key, head.log_start_offset, error)
        else:
            return


def _mark_refs(instance: Instance, key: PartitionKey, head: Head, live: LiveSegments, log_start_grace_ms: int) -> None:
    safe = safe_log_start(head, instance.clock.now_ms(), log_start_grace_ms)
    live.add_refs(each.ref for each in head.located_tail() if each.end_offset > safe)
    for page in pages_forward(instance.stores.log, key, head, safe, INDEX_MARK_PAGES):
        live.add_refs(each.ref for each in page.located() if each.end_offset > safe)
    live.add(instance.stores.compaction.retired(key, live.cutoff_ms))  # 2: after the pages


def _check_deleted(instance: Instance, topic: Topic) -> None:
    """Raises CORRUPT_SEGMENT if the topic still exists: a deletion takes the name away before any head."""
    now = instance.stores.topics.get(topic.name)
    if now is not None and now.topic_id == topic.topic_id:
        raise PenstockError(
            ErrorCode.CORRUPT_SEGMENT,
            f"topic {topic.name!r} has partitions without a head: nothing is swept while the index is damaged",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """An object of marks, by the folders of one layout."""

    layout: KeyLayout
    segment_id: SegmentId


def put_marks(instance: Instance, ids: Collection[SegmentId], layout: KeyLayout) -> Marks:
    """Stores the ids by the folders of the layout. One put. Raises STORAGE_UNAVAILABLE."""
    folders: dict[int, list[bytes]] = {}
    for segment_id in sorted(ids):
        folders.setdefault(folder_number(segment_id, layout), []).append(segment_id)
    parts = [(number, b"".join(folders[number])) for number in sorted(folders)]
    table = b"".join(_ENTRY.pack(number, len(part) // SEGMENT_ID_BYTES, crc32c(part)) for number, part in parts)
    body = b"".join((_HEADER.pack(len(parts), crc32c(table)), table, *(part for _, part in parts)))
    marks_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    instance.stores.archive.put(marks_id, body, crc32c(body))
    return Marks(layout=layout, segment_id=marks_id)


@dataclass(frozen=True, slots=True)
class MarksReader:
    """Reads objects of marks, and remembers their tables. For one run."""

    archive: ArchiveStore
    marks: Sequence[Marks]
    _tables: dict[SegmentId, list[tuple[int, int, int]]] = field(default_factory=dict)

    def read(self, layout: KeyLayout, numbers: range) -> Iterator[SegmentId]:
        """The ids in these folders of the layout. One get for each object, and two more at its first use.

        Raises STORAGE_UNAVAILABLE, with the fact `is_missing` if an object is gone, and CORRUPT_SEGMENT for a damaged
        one.
        """
        for marks_id in (each.segment_id for each in self.marks if each.layout is layout):
            if marks_id not in self._tables:
                self._tables[marks_id] = self._table(marks_id)
            yield from self._ids(marks_id, self._tables[marks_id], numbers)

    def _table(self, marks_id: SegmentId) -> list[tuple[int, int, int]]:
        folders, checksum = _HEADER.unpack(self.archive.get(marks_id, 0, _HEADER.size))
        table = self.archive.get(marks_id, _HEADER.size, folders * _ENTRY.size) if folders else b""
        if crc32c(table) != checksum:
            raise _damaged(marks_id)
        return list(_ENTRY.iter_unpack(table))

    def _ids(self, marks_id: SegmentId, table: Sequence[tuple[int, int, int]], numbers: range) -> Iterator[SegmentId]:
        first = sum(count for number, count, _ in table if number < numbers.start)
        wanted = [(count, checksum) for number, count, checksum in table if number in numbers]
        total = sum(count for count, _ in wanted)
        if not total:
            return
        start = _HEADER.size + len(table) * _ENTRY.size + first * SEGMENT_ID_BYTES
        ids = self.archive.get(marks_id, start, total * SEGMENT_ID_BYTES)
        at = 0
        for count, checksum in wanted:
            part = ids[at : at + count * SEGMENT_ID_BYTES]
            if crc32c(part) != checksum:
                raise _damaged(marks_id)
            yield from (SegmentId(part[i : i + SEGMENT_ID_BYTES]) for i in range(0, len(part), SEGMENT_ID_BYTES))
            at += len(part)


def _damaged(marks_id: SegmentId) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT, f"the marks {marks_id.hex()} of a sweep are damaged: nothing was swept"
    )
