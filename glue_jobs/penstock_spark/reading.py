"""Slices to stored bytes, straight from the zones. Runs on executors.

Which zone is asked first, what is done when one is slow, and the check of every batch's CRC are the broker's own
(`read_range`): a bad copy is passed over and reported for repair. A segment may have gone since the read was planned,
merged into another or removed by retention: the index is asked again then, for the same offsets.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from penstock_broker.broker import Broker
from penstock_broker.read_range import MAY_BE_REMOVED, read_range
from penstock_core.errors import PenstockError
from penstock_core.limits import MIB
from penstock_spark.decoding import Stored
from penstock_spark.planning import data_loss, slices_between
from penstock_spark.slices import Slice, Wanted, ranges_of, shared_ranges

_AHEAD_RANGES = 8
_AHEAD_BYTES = 32 * MIB
_LOOKS_MAX = 4  # how often the index is asked again for one range: each time somebody has moved it meanwhile


def read_slices(
    broker: Broker,
    slices: Sequence[Slice],
    *,
    range_bytes: int,
    fails_on_data_loss: bool,
    shares_ranges: bool = False,
) -> Iterator[Stored]:
    """The slices' bytes in their order, checked; up to 8 ranges and 32 MiB are read ahead. With `shares_ranges`, only
    those of each partition are in their order, and what one request appended to several is read by one get.

    Raises OFFSET_OUT_OF_RANGE if retention has removed some of the offsets since they were planned (left out unless
    the read `fails_on_data_loss`), and what `read_range` raises where they should be there.
    """
    broker.zone_directory.find_for_reading()  # here, once, for all the reads that go by what is remembered
    wanted = (shared_ranges if shares_ranges else ranges_of)(slices, range_bytes)
    ahead: deque[tuple[Wanted, Future[list[Stored]]]] = deque()
    ahead_bytes = 0
    pool = ThreadPoolExecutor(_AHEAD_RANGES, thread_name_prefix="penstock-read")
    try:
        for each in wanted:
            while ahead and (len(ahead) == _AHEAD_RANGES or ahead_bytes + each.range.length > _AHEAD_BYTES):
                done, future = ahead.popleft()
                ahead_bytes -= done.range.length
                yield from future.result()
            ahead.append((each, pool.submit(_read, broker, each, range_bytes, fails_on_data_loss)))
            ahead_bytes += each.range.length
        while ahead:
            yield from ahead.popleft()[1].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read(broker: Broker, wanted: Wanted, range_bytes: int, fails_on_data_loss: bool) -> list[Stored]:
    return _read_again(broker, wanted, range_bytes, fails_on_data_loss, _LOOKS_MAX)


def _read_again(
    broker: Broker, wanted: Wanted, range_bytes: int, fails_on_data_loss: bool, looks_left: int
) -> list[Stored]:
    try:
        return _cut(wanted, read_range(broker, wanted.range))
    except PenstockError as error:
        if error.code not in MAY_BE_REMOVED or not looks_left:
            raise
        parts = wanted.by_slice()
        if len(parts) > 1:  # each may have moved elsewhere
            return [
                stored
                for part in parts
                for stored in _read_again(broker, part, range_bytes, fails_on_data_loss, looks_left)
            ]
        found = _look_again(broker, wanted, range_bytes, error, fails_on_data_loss)
    return [
        stored
        for each in found
        for stored in _read_again(broker, each, range_bytes, fails_on_data_loss, looks_left - 1)
    ]


def _look_again(
    broker: Broker, wanted: Wanted, range_bytes: int, error: PenstockError, fails_on_data_loss: bool
) -> list[Wanted]:
    """Where the range's offsets are now, which one slice wants. Raises the error if they are where they were."""
    wanted_by = wanted.slices[0]
    topic, key = wanted_by.topic, wanted_by.key
    start = max(wanted_by.start_offset, wanted.range.refs[0].base_offset)
    end = min(wanted_by.end_offset, wanted.range.refs[-1].end_offset)
    head = broker.log.heads([key]).get(key)
    if head is None or head.log_start_offset > start:
        if fails_on_data_loss:
            raise data_loss(topic, key, start, end, head) from error
        if head is None or head.log_start_offset >= end:
            return []
        start = head.log_start_offset
    found = list(ranges_of(slices_between(broker, topic, key, head, start, end), range_bytes))
    if wanted.range in [each.range for each in found]:
        raise error
    return found


def _cut(wanted: Wanted, data: bytes) -> list[Stored]:
    """One piece for each run of refs of a slice that lie side by side in the range."""
    pieces: list[Stored] = []
    refs, slices = wanted.range.refs, wanted.slices
    first = 0
    for index, located in enumerate(refs):
        end, following = located.ref.position + located.ref.length, index + 1
        if following == len(refs) or refs[following].ref.position != end or slices[following] is not slices[index]:
            start = refs[first].ref.position - wanted.range.position
            length = end - refs[first].ref.position
            pieces.append(
                Stored(
                    topic=slices[index].topic,
                    partition=slices[index].key.partition,
                    data=data if length == len(data) else data[start : start + length],
                    base_offset=refs[first].base_offset,
                    start_offset=slices[index].start_offset,
                    end_offset=slices[index].end_offset,
                )
            )
            first = following
    return pieces
