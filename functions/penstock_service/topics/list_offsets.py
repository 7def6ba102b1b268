"""List offsets: the ends of a partition, or the first record at or after a time.

The module also holds the result of a reset in one partition, for groups and for share groups.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId, ZoneName
from penstock_core.limits import (
    INDEX_FETCH_PAGES,
    OFFSET_SEARCH_ATTEMPTS_MAX,
    OFFSET_SEARCH_BYTES_MAX,
    OFFSET_SEARCH_PAGES_MAX,
)
from penstock_core.log.index import Head
from penstock_core.log.read_plan import join_ranges
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.log.retention import searched_ms, written_ms
from penstock_core.outcomes import Outcomes
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.records.record_batch import BatchHeader, BytesLike, stamp, walk
from penstock_core.records.record_check import DecodeBudget
from penstock_core.records.undecodable import is_undecodable
from penstock_service.index.reader import page_at, pages_forward, ref_at
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.segments.read_range import MAY_BE_REMOVED, read_range
from penstock_service.segments.read_refs import with_gaps


class OffsetSpec(Enum):
    """The ends of a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """The offset found in one partition, of the topic with this id.

    `offset` is None if no record is at or after the time asked for. `timestamp_ms` is that record's. It is None for an
    end, and where the search has spent its bytes or pages: then no record before `offset` is at or after the time. A
    delayed record has the time of its delivery here. Compaction may merge its ref with others, and a search may then
    find the first record of the merged ref.
    """

    topic_id: TopicId
    partition: Partition
    offset: Offset | None
    timestamp_ms: int | None = None


def list_offsets(
    instance: Instance, topic_name: str, spec: OffsetSpec | int, partition: int | None
) -> Outcomes[ListedOffset]:
    """One result per partition of the topic, or one for `partition`.

    `spec` is an end, or a time in milliseconds for the first record at or after it. An end costs one read for
    100 partitions. A time also costs, for each partition, one query per bisection of its pages and the read of one ref.
    It passes over undecodable batches. For all partitions together it decodes about `OFFSET_SEARCH_BYTES_MAX`, and
    reads `OFFSET_SEARCH_PAGES_MAX` pages behind the bisections.
    Raises INVALID_NAME, UNKNOWN_TOPIC (also while the topic is being deleted), UNKNOWN_PARTITION.
    """
    keys = _keys(instance.topic_cache, topic_name, partition)
    heads = instance.stores.log.heads(keys)
    if len(heads) < len(keys):
        # The topic was deleted, and perhaps created again, since it was looked up: ask once more what the name means.
        instance.topic_cache.forget(topic_name)
        keys = _keys(instance.topic_cache, topic_name, partition)
        heads = instance.stores.log.heads(keys)
    if len(heads) < len(keys):
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic_name!r} is being deleted")
    if isinstance(spec, OffsetSpec):
        return Outcomes([_end(key, heads[key], spec) for key in keys])
    search = _Search(instance, spec)
    return instance.executor.map(lambda key: _first_at_or_after(search, key, heads[key]), keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlace:
    """The place of a record: the ref of `[start_offset, end_offset)`, which one append or compaction has written.

    `appended_ms` is when the newest record of the ref was appended. `zones` confirmed the segment before the append was
    committed; other ones may have it since. They are empty for an item and for the archive. `sequence` is that of the
    idempotent producer, None without one.
    """

    topic_id: TopicId
    partition: Partition
    start_offset: Offset
    end_offset: Offset
    appended_ms: int
    tier: Tier
    segment_id: SegmentId
    position: int
    length: int
    zones: tuple[ZoneName, ...]
    sequence: ProducerSequence | None


def place_of_record(instance: Instance, topic_name: str, partition: int, offset: int) -> RecordPlace:
    """The place of the record at `offset`. One read of the head, and a query if the record is not in the tail.

    Raises UNKNOWN_TOPIC, UNKNOWN_PARTITION, and OFFSET_OUT_OF_RANGE for an offset that the partition does not hold.
    """
    key = instance.topic_cache.get_partition(topic_name, partition)[1]
    head = instance.stores.log.heads([key]).get(key)
    if head is None:
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic_name!r} is being deleted")
    if not head.log_start_offset <= offset < head.next_offset:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset}: {topic_name}[{partition}] holds [{head.log_start_offset}, {head.next_offset})",
            log_start_offset=head.log_start_offset,
            high_watermark=head.high_watermark,
        )
    found = ref_at(instance, key, head, Offset(offset))
    ref = found.ref
    names = instance.stores.zone_names if ref.tier is Tier.ZONAL else ()
    return RecordPlace(
        topic_id=key.topic_id,
        partition=key.partition,
        start_offset=found.base_offset,
        end_offset=found.end_offset,
        appended_ms=written_ms(ref),
        tier=ref.tier,
        segment_id=ref.segment_id,
        position=ref.position,
        length=ref.length,
        zones=tuple(name for index, name in enumerate(names) if ref.zones >> index & 1),
        sequence=ref.sequence,
    )


def _keys(topic_cache: TopicCache, topic_name: str, partition: int | None) -> list[PartitionKey]:
    if partition is not None:
        return [topic_cache.get_partition(topic_name, partition)[1]]
    topic = topic_cache.read_through(topic_name)
    return [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]


def _end(key: PartitionKey, head: Head, spec: OffsetSpec) -> ListedOffset:
    offset = head.log_start_offset if spec is OffsetSpec.EARLIEST else head.high_watermark
    return ListedOffset(topic_id=key.topic_id, partition=key.partition, offset=offset)


def _first_at_or_after(search: "_Search", key: PartitionKey, head: Head) -> ListedOffset:
    """Search the log. If the log start has risen over the records being read, search again from the new one.

    Raises the error of the last search after `OFFSET_SEARCH_ATTEMPTS_MAX` searches.
    """
    for attempt in range(1, OFFSET_SEARCH_ATTEMPTS_MAX + 1):
        try:
            return search.in_log(key, head)
        except PenstockError as error:
            now = search.instance.stores.log.heads([key]).get(key) if error.code in MAY_BE_REMOVED else head
            if now is None:
                raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"partition {key} is being deleted") from error
            if now.log_start_offset <= head.log_start_offset or attempt == OFFSET_SEARCH_ATTEMPTS_MAX:
                raise
            head = now
    raise AssertionError("the last search returns or raises")


def _bisect(log: LogIndex, key: PartitionKey, head: Head, timestamp_ms: int) -> Offset:
    """An offset not above the one looked for. One query per halving.

    Each page carries the largest timestamp of all records up to its end. That timestamp never falls from page to page,
    so halving finds the first page that reaches `timestamp_ms`.
    """
    low, high = head.log_start_offset, head.tail_base
    if head.rolled_max_timestamp_ms < timestamp_ms:
        return max(low, high)
    while low < high:
        page = page_at(log, key, Offset((low + high) // 2))
        if page.max_timestamp_ms >= timestamp_ms:
            high = page.base_offset
        else:
            low = page.end_offset
    return low


class _Search:
    """One call's search for the first record at or after a time, in any number of partitions.

    `_turn` lets one thread decode at a time: a batch may take `BATCH_DECODED_BYTES_MAX` of memory, and all threads
    share the bytes that the call may decode.
    """

    def __init__(self, instance: Instance, timestamp_ms: int) -> None:
        self.instance = instance
        self._timestamp_ms = timestamp_ms
        self._turn = threading.Lock()
        self._budget = DecodeBudget(OFFSET_SEARCH_BYTES_MAX)
        self._pages_left = OFFSET_SEARCH_PAGES_MAX

    def in_log(self, key: PartitionKey, head: Head) -> ListedOffset:
        log = self.instance.stores.log
        start = _bisect(log, key, head, self._timestamp_ms)
        found: tuple[Offset, int | None] | None = None
        for page in pages_forward(log, key, head, start, INDEX_FETCH_PAGES):
            stop = max(page.base_offset, start), None
            found = self._in_refs(key, page.located(), head) if self._takes_page() else stop
            if found is not None:
                break
        else:
            found = self._in_refs(key, (each for each in head.located_tail() if each.end_offset > start), head)
        offset, found_ms = found or (None, None)
        return ListedOffset(topic_id=key.topic_id, partition=key.partition, offset=offset, timestamp_ms=found_ms)

    def _takes_page(self) -> bool:
        """False once all threads together have read `OFFSET_SEARCH_PAGES_MAX` pages.

        Retention may have removed a record with a time far ahead. Pages still count it, so the bisection may end at the
        log start, and the walk from there would outlast the function.
        """
        with self._turn:
            self._pages_left -= 1
            return self._pages_left >= 0

    def _in_refs(self, key: PartitionKey, refs: Iterable[LocatedRef], head: Head) -> tuple[Offset, int | None] | None:
        for located in refs:
            if searched_ms(located.ref) < self._timestamp_ms or located.end_offset <= head.log_start_offset:
                continue
            delivered_ms = located.ref.appended_ms if located.ref.is_delayed else None
            if delivered_ms is not None and delivered_ms >= self._timestamp_ms:
                return max(located.base_offset, head.log_start_offset), delivered_ms
            found = self._in_ref(key, located, head.log_start_offset)
            if found is not None:
                return found
        return None

    def _in_ref(self, key: PartitionKey, located: LocatedRef, start_offset: int) -> tuple[Offset, int | None] | None:
        """Offset and timestamp of the ref's first record at or after the time and not below `start_offset`, or None.

        Once the bytes are spent: the first offset of the batch that may hold it.
        """
        try:
            data = bytearray(read_range(self.instance, *join_ranges([located])))
        except PenstockError as error:
            content = with_gaps(self.instance, {located: error}, [(key, [located])])[located]
            if isinstance(content, PenstockError):
                raise content from error
            return None
        stamp(data, located.base_offset)
        for position, header in walk(data):
            if header.max_timestamp_ms < self._timestamp_ms or header.next_offset <= start_offset:
                continue
            with self._turn:
                if self._budget.is_spent:
                    return Offset(max(header.base_offset, start_offset)), None
                found = self._in_batch(memoryview(data)[position : position + header.length], header, start_offset)
            if found is not None:
                return found
        return None

    def _in_batch(self, batch: BytesLike, header: BatchHeader, start_offset: int) -> tuple[Offset, int] | None:
        try:
            for record in self._budget.decode(batch, header):
                if record.timestamp >= self._timestamp_ms and record.offset >= start_offset:
                    return Offset(record.offset), record.timestamp
        except PenstockError as error:
            if not is_undecodable(error):
                raise
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """The offset before the reset, None if there was none, and after it (in a dry run: after it would be done)."""

    old_offset: Offset | None
    new_offset: Offset
