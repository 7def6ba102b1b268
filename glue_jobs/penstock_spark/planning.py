"""From offsets to what each task reads. Runs on the driver, once per read or micro-batch.

The heads are read once, and all that follows goes by them: the offsets of a read are fixed here, and so are the
segments that hold them. Readers look again only where an object is gone by the time they come (reading.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_broker.broker import Broker
from penstock_broker.walk_pages import walk_pages
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_spark.slices import Slice, pack, slice_of

_PAGES_PER_QUERY = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets `[start_offset, end_offset)` of one partition, and its head when they were chosen."""

    topic: str
    key: PartitionKey
    head: Head
    start_offset: int
    end_offset: int


def plan_slices(
    broker: Broker,
    ranges: Sequence[OffsetRange],
    *,
    partition_bytes: int,
    min_partitions: int | None = None,
    fails_on_data_loss: bool = True,
) -> list[tuple[Slice, ...]]:
    """What each task reads: groups of slices of `partition_bytes` at most (or one ref), and of less where that brings
    the number of groups near `min_partitions`; together all of `ranges`, in their order.

    Raises OFFSET_OUT_OF_RANGE as `keep_what_is_there`, for what is removed meanwhile. One query of the index for each
    64 pages (about 1,000 refs) of each partition, side by side; none for what lies in a head's tail.
    """
    found = broker.parallel.map(lambda each: _slices(broker, each, fails_on_data_loss), ranges)
    slices: list[Slice] = []
    for result in found:
        if isinstance(result, PenstockError):
            raise result
        slices += result
    if min_partitions is not None:
        total_bytes = sum(located.ref.length for each in slices for located in each.located())
        partition_bytes = min(partition_bytes, max(1, total_bytes // min_partitions))
    return list(pack(slices, partition_bytes))


def slices_between(
    broker: Broker, topic: str, key: PartitionKey, head: Head, start_offset: int, end_offset: int
) -> Iterator[Slice]:
    """The refs that hold the offsets, as the index has them now, a slice for each page and one for the tail.

    Each begins where the one before ends, also where its first ref lies below: pages were merged meanwhile then."""
    span = min(end_offset, head.tail_base) - start_offset
    pages_max = min(_PAGES_PER_QUERY, span // TAIL_ROLL_REFS + 2)  # a page has as many refs or more, each an offset
    for page in walk_pages(broker.log, key, head, Offset(start_offset), pages_max):
        if page.base_offset >= end_offset:
            return
        if found := slice_of(topic, key, start_offset, end_offset, page.located()):
            yield found
            start_offset = found.end_offset
    if found := slice_of(topic, key, start_offset, end_offset, head.located_tail()):
        yield found


def _slices(broker: Broker, wanted: OffsetRange, fails_on_data_loss: bool) -> list[Slice]:
    """Begins again where the log start has risen over what was being read, as often as it does."""
    while True:
        try:
            return list(
                slices_between(broker, wanted.topic, wanted.key, wanted.head, wanted.start_offset, wanted.end_offset)
            )
        except PenstockError as error:
            head = broker.log.heads([wanted.key]).get(wanted.key)
            if head is not None and head.log_start_offset <= wanted.head.log_start_offset:
                raise
            if fails_on_data_loss:
                raise data_loss(wanted.topic, wanted.key, wanted.start_offset, wanted.end_offset, head) from error
            if head is None:
                return []
            wanted = replace(wanted, head=head, start_offset=max(wanted.start_offset, head.log_start_offset))


def keep_what_is_there(ranges: Iterable[OffsetRange], *, fails_on_data_loss: bool) -> list[OffsetRange]:
    """The ranges that are not empty. Offsets that retention has removed, or that the partition does not have, raise
    OFFSET_OUT_OF_RANGE, or are left out unless the read `fails_on_data_loss`."""
    kept: list[OffsetRange] = []
    for each in ranges:
        bounds = each.head.log_start_offset, each.head.high_watermark
        start, end = (min(max(offset, bounds[0]), bounds[1]) for offset in (each.start_offset, each.end_offset))
        is_whole = each.start_offset >= each.end_offset or (start, end) == (each.start_offset, each.end_offset)
        if not is_whole and fails_on_data_loss:
            raise data_loss(each.topic, each.key, each.start_offset, each.end_offset, each.head)
        if start < end:
            kept.append(replace(each, start_offset=start, end_offset=end))
    return kept


def data_loss(topic: str, key: PartitionKey, start_offset: int, end_offset: int, head: Head | None) -> PenstockError:
    """The error of a read that finds some of its offsets removed."""
    now = "it is deleted" if head is None else f"it holds [{head.log_start_offset}, {head.high_watermark})"
    return PenstockError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offsets [{start_offset}, {end_offset}) of partition {key.partition} of topic {topic!r} are not all there: "
        f"{now}. Retention, truncation or deletion removed the rest; read from where it begins now, or go on without "
        "them by the option failOnDataLoss=false",
    )
