"""Offsets by name (earliest, latest) or by time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock_broker.broker import Broker
from penstock_broker.read_range import MAY_BE_REMOVED, read_range
from penstock_broker.walk_pages import page_at, walk_pages
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.read_plan import join_ranges
from penstock_core.record_batch import stamp, walk
from penstock_core.records import decode
from penstock_core.ref import LocatedRef

_PAGES_PER_QUERY = 16


class OffsetSpec(Enum):
    """The ends of a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """`offset` is None where no record is at or after the time asked for; `timestamp_ms` is that record's."""

    partition: Partition
    offset: Offset | None
    timestamp_ms: int | None = None


def list_offsets(
    broker: Broker, topic_name: str, spec: OffsetSpec | int, partition: int | None
) -> list[ListedOffset | PenstockError]:
    """One result per partition of the topic, or one for `partition`.

    `spec` is an end or a time in milliseconds, for the first record at or after it. An end costs one read for
    100 partitions; a time costs for each partition one query per bisection of its pages and the read of one ref.
    Raises INVALID_NAME, UNKNOWN_TOPIC (as for a topic that is being deleted), UNKNOWN_PARTITION.
    """
    keys = _keys(broker, topic_name, partition)
    heads = broker.log.heads(keys)
    if len(heads) < len(keys):
        # Deleted, and perhaps created again, since the topic was looked up: ask once more what the name means.
        broker.directory.forget(topic_name)
        keys = _keys(broker, topic_name, partition)
        heads = broker.log.heads(keys)
    if len(heads) < len(keys):
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic_name!r} is being deleted")
    if isinstance(spec, OffsetSpec):
        return [_end(key, heads[key], spec) for key in keys]
    return broker.parallel.map(lambda key: _first_at_or_after(broker, key, heads[key], spec), keys)


def _keys(broker: Broker, topic_name: str, partition: int | None) -> list[PartitionKey]:
    if partition is not None:
        return [broker.directory.find_partition(topic_name, partition)[1]]
    topic = broker.directory.look_up(topic_name)
    return [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]


def _end(key: PartitionKey, head: Head, spec: OffsetSpec) -> ListedOffset:
    offset = head.log_start_offset if spec is OffsetSpec.EARLIEST else head.high_watermark
    return ListedOffset(partition=key.partition, offset=offset)


def _first_at_or_after(broker: Broker, key: PartitionKey, head: Head, timestamp_ms: int) -> ListedOffset:
    """Begins again where the log start has risen over what was being read, as often as it does."""
    while True:
        try:
            return _search_log(broker, key, head, timestamp_ms)
        except PenstockError as error:
            now = broker.log.heads([key]).get(key) if error.code in MAY_BE_REMOVED else head
            if now is None:
                raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"partition {key} is being deleted") from error
            if now.log_start_offset <= head.log_start_offset:
                raise
            head = now


def _search_log(broker: Broker, key: PartitionKey, head: Head, timestamp_ms: int) -> ListedOffset:
    for located in _refs_from(broker, key, head, _bisect(broker, key, head, timestamp_ms)):
        if located.ref.max_timestamp_ms < timestamp_ms or located.end_offset <= head.log_start_offset:
            continue
        found = _search(broker, located, timestamp_ms, head.log_start_offset)
        if found is not None:
            return ListedOffset(partition=key.partition, offset=found[0], timestamp_ms=found[1])
    return ListedOffset(partition=key.partition, offset=None)


def _bisect(broker: Broker, key: PartitionKey, head: Head, timestamp_ms: int) -> Offset:
    """An offset not above the one looked for: pages carry the largest timestamp of all up to them, which never
    falls, so the first page that reaches `timestamp_ms` can be found by halving."""
    low, high = head.log_start_offset, head.tail_base
    if head.rolled_max_timestamp_ms < timestamp_ms:
        return max(low, high)
    while low < high:
        page = page_at(broker.log, key, Offset((low + high) // 2))
        if page.max_timestamp_ms >= timestamp_ms:
            high = page.base_offset
        else:
            low = page.end_offset
    return low


def _refs_from(broker: Broker, key: PartitionKey, head: Head, offset: Offset) -> Iterator[LocatedRef]:
    for page in walk_pages(broker.log, key, head, offset, _PAGES_PER_QUERY):
        yield from page.located()
    yield from (located for located in head.located_tail() if located.end_offset > offset)


def _search(broker: Broker, located: LocatedRef, timestamp_ms: int, start_offset: int) -> tuple[Offset, int] | None:
    """The first record of a ref at or after the time and not below `start_offset`: decodes single batches."""
    [wanted] = join_ranges([located])
    data = bytearray(read_range(broker, wanted))
    stamp(data, located.base_offset)
    for position, header in walk(data):
        if header.max_timestamp_ms < timestamp_ms:
            continue
        for record in decode(memoryview(data)[position : position + header.length]):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return Offset(record.offset), record.timestamp
    return None


def listed(results: Sequence[ListedOffset | PenstockError]) -> list[ListedOffset]:
    """All results, or the first error raised."""
    for result in results:
        if isinstance(result, PenstockError):
            raise result
    return [result for result in results if isinstance(result, ListedOffset)]
