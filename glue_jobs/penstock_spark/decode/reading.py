"""Reads the bytes of slices straight from the zones. Runs on executors.

The service's own `read_range` chooses the zone, hedges a slow read and checks the CRC of every batch. It passes over a
bad copy and reports it for repair. A segment may be gone by now: compaction merged it, or retention removed it. Then
the reader asks the index again for the same offsets.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from penstock_core.errors import PenstockError
from penstock_core.limits import MIB
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_range import MAY_BE_REMOVED, is_expired, read_range
from penstock_service.segments.read_refs import is_gap
from penstock_spark.decode.decoding import StoredBatches
from penstock_spark.plan.planning import data_loss, slices_between
from penstock_spark.plan.slices import RangeRead, Slice, ranges_of, shared_ranges

_AHEAD_RANGES = 8  # gets in flight at once; with _AHEAD_BYTES it bounds a task's memory
_AHEAD_BYTES = 32 * MIB  # one larger range is read alone
_LOOKS_MAX = 4  # looks at the index for one range; each further look means that the range has moved again


def read_slices(
    instance: Instance,
    slices: Sequence[Slice],
    *,
    range_bytes: int,
    fails_on_data_loss: bool,
    shares_ranges: bool = False,
) -> Iterator[StoredBatches]:
    """Yield the slices' bytes in their order, checked. Reads at most 8 ranges and 32 MiB ahead.

    With `shares_ranges`, the order holds within each partition only, and one get reads the batches that one request
    appended to several partitions.

    Raises OFFSET_OUT_OF_RANGE if retention removed some of the planned offsets, unless the read does not
    `fails_on_data_loss`: then it leaves them out. Raises the error of `read_range` if the offsets should exist.
    """
    instance.zone_cache.get_for_reading()  # fills the cache once, before the threads below use it
    reads = (shared_ranges if shares_ranges else ranges_of)(slices, range_bytes)
    ahead: deque[tuple[RangeRead, Future[list[StoredBatches]]]] = deque()
    ahead_bytes = 0
    pool = ThreadPoolExecutor(_AHEAD_RANGES, thread_name_prefix="penstock-read")
    try:
        for each in reads:
            while ahead and (len(ahead) == _AHEAD_RANGES or ahead_bytes + each.range.length > _AHEAD_BYTES):
                done, future = ahead.popleft()
                ahead_bytes -= done.range.length
                yield from future.result()
            ahead.append((each, pool.submit(_read, instance, each, range_bytes, fails_on_data_loss)))
            ahead_bytes += each.range.length
        while ahead:
            yield from ahead.popleft()[1].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read(instance: Instance, read: RangeRead, range_bytes: int, fails_on_data_loss: bool) -> list[StoredBatches]:
    return _read_again(instance, read, range_bytes, fails_on_data_loss, _LOOKS_MAX)


def _read_again(
    instance: Instance, read: RangeRead, range_bytes: int, fails_on_data_loss: bool, looks_left: int
) -> list[StoredBatches]:
    try:
        return _cut(read, read_range(instance, read.range))
    except PenstockError as error:
        if error.code not in MAY_BE_REMOVED or not looks_left:
            raise
        parts = read.by_slice()
        if len(parts) > 1:  # each part may have moved elsewhere
            return [
                stored
                for part in parts
                for stored in _read_again(instance, part, range_bytes, fails_on_data_loss, looks_left)
            ]
        found = _locate_again(instance, read, range_bytes, error, fails_on_data_loss)
    return [
        stored
        for each in found
        for stored in _read_again(instance, each, range_bytes, fails_on_data_loss, looks_left - 1)
    ]


def _locate_again(
    instance: Instance, read: RangeRead, range_bytes: int, error: PenstockError, fails_on_data_loss: bool
) -> list[RangeRead]:
    """The present places of the offsets of a range that belongs to one slice.

    Empty if their small append has expired: a gap until retention has passed it. Else raises `error` if they have not
    moved.
    """
    owner = read.slices[0]
    topic, key = owner.topic, owner.key
    start = max(owner.start_offset, read.range.refs[0].base_offset)
    end = min(owner.end_offset, read.range.refs[-1].end_offset)
    head = instance.stores.log.heads([key]).get(key)
    if head is None or head.log_start_offset > start:
        if fails_on_data_loss:
            raise data_loss(topic, key, start, end, head) from error
        if head is None or head.log_start_offset >= end:
            return []
        start = head.log_start_offset
    found = list(ranges_of(slices_between(instance, topic, key, head, start, end), range_bytes))
    if read.range in [each.range for each in found]:
        if is_expired(error) and _are_gaps(instance, read, error):
            return []
        raise error
    return found


def _are_gaps(instance: Instance, read: RangeRead, error: PenstockError) -> bool:
    """Tells if the refs of the range, which the index names still, have expired by their topic as it is now."""
    owner = read.slices[0]
    topic = instance.topic_cache.read_through(owner.topic)
    topic_now = topic if topic.topic_id == owner.key.topic_id else None
    return all(is_gap(instance, topic_now, located, error) for located in read.range.refs)


def _cut(read: RangeRead, data: bytes) -> list[StoredBatches]:
    """One piece for each run of refs of a slice that lie side by side in the range."""
    pieces: list[StoredBatches] = []
    refs, slices = read.range.refs, read.slices
    first = 0
    for index, located in enumerate(refs):
        end, following = located.ref.position + located.ref.length, index + 1
        if following == len(refs) or refs[following].ref.position != end or slices[following] is not slices[index]:
            place = read.range.place_of(refs[first], located)
            pieces.append(
                StoredBatches(
                    topic=slices[index].topic,
                    partition=slices[index].key.partition,
                    data=data[place],
                    base_offset=refs[first].base_offset,
                    start_offset=slices[index].start_offset,
                    end_offset=slices[index].end_offset,
                )
            )
            first = following
    return pieces
