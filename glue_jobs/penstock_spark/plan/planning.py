"""Turns offset ranges into slices for tasks. Runs on the driver, once per read or micro-batch.

The driver reads the heads once, and the whole plan uses them. So the plan fixes the offsets of a read, and the segments
that hold them. A task reads the index again only if an object is gone when the task asks for it (reading.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import INDEX_RUN_PAGES, TAIL_ROLL_REFS
from penstock_core.log.index import Head
from penstock_service.index.reader import pages_forward
from penstock_service.instance.instance import Instance
from penstock_spark.plan.slices import Slice, pack, slice_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets `[start_offset, end_offset)` of one partition, and the head from which they were chosen."""

    topic: str
    key: PartitionKey
    head: Head
    start_offset: int
    end_offset: int


def plan_slices(
    instance: Instance,
    ranges: Sequence[OffsetRange],
    *,
    partition_bytes: int,
    min_partitions: int | None = None,
    fails_on_data_loss: bool = True,
) -> list[tuple[Slice, ...]]:
    """Plan a read: one group of slices for each task. Together the groups cover all of `ranges`, in their order.

    A group holds at most `partition_bytes`, or a single ref that is larger. `min_partitions` lowers that bound, so that
    about so many groups come out.

    Raises OFFSET_OUT_OF_RANGE, as `clip_to_log` does, for offsets that are removed during the planning. Costs one query
    of the index for each 64 pages (about 1,000 refs) of each partition, in parallel; the refs in a head's tail cost
    nothing.
    """
    found = instance.executor.map(lambda each: _slices(instance, each, fails_on_data_loss), ranges)
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
    instance: Instance, topic: str, key: PartitionKey, head: Head, start_offset: int, end_offset: int
) -> Iterator[Slice]:
    """Yield the refs that hold the offsets, as the index has them now: a slice for each page, and one for the tail.

    Each slice begins where the one before it ends. Its first ref may begin below that, if compaction merged pages
    meanwhile.
    """
    span = min(end_offset, head.tail_base) - start_offset
    # Each page has at least TAIL_ROLL_REFS refs, and each ref at least one offset.
    pages_max = min(INDEX_RUN_PAGES, span // TAIL_ROLL_REFS + 2)
    for page in pages_forward(instance.stores.log, key, head, Offset(start_offset), pages_max):
        if page.base_offset >= end_offset:
            return
        if found := slice_of(topic, key, start_offset, end_offset, page.located()):
            yield found
            start_offset = found.end_offset
    if found := slice_of(topic, key, start_offset, end_offset, head.located_tail()):
        yield found


def _slices(instance: Instance, offsets: OffsetRange, fails_on_data_loss: bool) -> list[Slice]:
    """Read the slices of one range. Start again each time the log start has risen above the start of the range.

    Each turn needs a log start that has risen, so the range shrinks until it is read or empty.
    """
    while True:
        try:
            return list(
                slices_between(
                    instance, offsets.topic, offsets.key, offsets.head, offsets.start_offset, offsets.end_offset
                )
            )
        except PenstockError as error:
            head = instance.stores.log.heads([offsets.key]).get(offsets.key)
            if head is not None and head.log_start_offset <= offsets.head.log_start_offset:
                raise
            if fails_on_data_loss:
                raise data_loss(offsets.topic, offsets.key, offsets.start_offset, offsets.end_offset, head) from error
            if head is None:
                return []
            offsets = replace(offsets, head=head, start_offset=max(offsets.start_offset, head.log_start_offset))


def clip_to_log(ranges: Iterable[OffsetRange], *, fails_on_data_loss: bool) -> list[OffsetRange]:
    """The ranges that are not empty, each clipped to the offsets that its partition holds.

    A bound within the jump of a restore goes to its end: the records between it and the jump's start are lost. Raises
    OFFSET_OUT_OF_RANGE if the clip removes offsets and the read `fails_on_data_loss`.
    """
    kept: list[OffsetRange] = []
    for each in ranges:
        bounds = each.head.log_start_offset, each.head.high_watermark
        start, end = (
            each.head.next_readable(min(max(offset, bounds[0]), bounds[1]))
            for offset in (each.start_offset, each.end_offset)
        )
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
        f"{now}. Retention, truncation, deletion or a restore removed the rest; read from its present start, or set "
        "the option failOnDataLoss=false to go on without them",
    )
