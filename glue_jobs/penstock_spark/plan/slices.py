"""Slices: the refs of one partition that one task reads, in the compact form in which the index stores them.

A million refs take 57 MB on the driver and in the tasks' descriptions. As objects they would take ten times that.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.read_plan import GAP_BYTES_MAX, SegmentRange
from penstock_core.log.ref import LocatedRef, decode_refs, encode_refs, locate


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Consecutive refs of one partition, the first at `base_offset`.

    The task reads the records in `[start_offset, end_offset)`, and each ref holds some of these offsets.
    """

    topic: str
    key: PartitionKey
    start_offset: Offset
    end_offset: Offset
    base_offset: Offset
    refs: bytes

    def located(self) -> Iterator[LocatedRef]:
        """The refs, each with its offsets."""
        return locate(self.base_offset, decode_refs(self.refs))


def slice_of(
    topic: str, key: PartitionKey, start_offset: int, end_offset: int, located: Sequence[LocatedRef]
) -> Slice | None:
    """A slice of those of the consecutive refs `located` that hold offsets of `[start_offset, end_offset)`.

    None if none of them does.
    """
    overlapping = [each for each in located if start_offset < each.end_offset and each.base_offset < end_offset]
    if not overlapping:
        return None
    return Slice(
        topic=topic,
        key=key,
        start_offset=Offset(max(start_offset, overlapping[0].base_offset)),
        end_offset=Offset(min(end_offset, overlapping[-1].end_offset)),
        base_offset=overlapping[0].base_offset,
        refs=encode_refs(each.ref for each in overlapping),
    )


def pack(slices: Iterable[Slice], partition_bytes: int) -> Iterator[tuple[Slice, ...]]:
    """Join and cut the slices so that each group holds at most `partition_bytes`, or a single ref that is larger."""
    group: list[list[tuple[Slice, LocatedRef]]] = []  # runs of consecutive refs of one partition
    group_bytes = 0
    for each in slices:
        for located in each.located():
            if group and group_bytes + located.ref.length > partition_bytes:
                yield tuple(map(_join, group))
                group, group_bytes = [], 0
            follows = bool(group) and group[-1][-1][0].key == each.key
            if follows and group[-1][-1][1].end_offset == located.base_offset:
                group[-1].append((each, located))
            else:
                group.append([(each, located)])
            group_bytes += located.ref.length
    if group:
        yield tuple(map(_join, group))


def _join(run: Sequence[tuple[Slice, LocatedRef]]) -> Slice:
    (first, start), (last, end) = run[0], run[-1]
    return Slice(
        topic=first.topic,
        key=first.key,
        start_offset=Offset(max(first.start_offset, start.base_offset)),
        end_offset=Offset(min(last.end_offset, end.end_offset)),
        base_offset=start.base_offset,
        refs=encode_refs(located.ref for _, located in run),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRead:
    """One ranged get. `slices` names, for each ref of the range, the slice that the ref belongs to."""

    range: SegmentRange
    slices: tuple[Slice, ...]

    def by_slice(self) -> "list[RangeRead]":
        """The same refs, with one get for each run of refs that belong to one slice."""
        parts = list(zip(self.slices, self.range.refs, strict=True))
        return [_range_read(list(run)) for _, run in groupby(parts, key=itemgetter(0))]


def ranges_of(slices: Iterable[Slice], range_bytes: int) -> Iterator[RangeRead]:
    """Yield the ranged gets that read the slices' refs in order.

    Neighbours in one segment share a get if the gap between them is small and the get stays within `range_bytes`.
    """
    return _joined(((each, located) for each in slices for located in each.located()), range_bytes)


def shared_ranges(slices: Sequence[Slice], range_bytes: int) -> Iterator[RangeRead]:
    """Yield ranged gets as `ranges_of` does, but let neighbours of several partitions of one topic share a get.

    Such neighbours come from one produce request. The refs of each partition keep their order, and all refs of one
    topic come before those of the next topic.
    """
    for _, of_topic in groupby(slices, key=lambda each: each.topic):
        partitions: dict[PartitionKey, list[Slice]] = {}
        for each in of_topic:
            partitions.setdefault(each.key, []).append(each)
        yield from _joined(_by_segment(list(partitions.values())), range_bytes)


_Part: TypeAlias = tuple[Slice, LocatedRef]


def _by_segment(partitions: Sequence[Sequence[Slice]]) -> Iterator[_Part]:
    """Yield the refs of the first partition in order, then the refs that are left of the second partition, and so on.

    Along with each segment come the other partitions' refs in it, if they are the next refs of those partitions.
    """
    refs = [((each, located) for each in slices for located in each.located()) for slices in partitions]
    following: list[_Part | None] = [next(each, None) for each in refs]
    waiting: dict[object, list[int]] = {}  # by segment: the partitions whose next ref is in it

    def await_next(number: int) -> None:
        if (part := following[number]) is not None:
            waiting.setdefault(_segment(part), []).append(number)

    for number in range(len(partitions)):
        await_next(number)
    for first in range(len(partitions)):
        while (part := following[first]) is not None:
            segment = _segment(part)
            runs: list[list[_Part]] = []
            for number in waiting.pop(segment):
                run: list[_Part] = []
                while (next_part := following[number]) is not None and _segment(next_part) == segment:
                    run.append(next_part)
                    following[number] = next(refs[number], None)
                runs.append(run)
                await_next(number)
            for run in sorted(runs, key=lambda run: run[0][1].ref.position):
                yield from run


def _segment(part: _Part) -> object:
    return part[1].ref.segment_id, part[1].ref.tier


def _joined(parts: Iterable[_Part], range_bytes: int) -> Iterator[RangeRead]:
    group: list[_Part] = []
    for part in parts:
        if group and not _is_next(group, part, range_bytes):
            yield _range_read(group)
            group = []
        group.append(part)
    if group:
        yield _range_read(group)


def _is_next(group: Sequence[_Part], part: _Part, range_bytes: int) -> bool:
    first, last, ref = group[0][1].ref, group[-1][1].ref, part[1].ref
    gap = ref.position - (last.position + last.length)
    is_same = (ref.segment_id, ref.tier) == (last.segment_id, last.tier)
    return is_same and 0 <= gap <= GAP_BYTES_MAX and ref.position + ref.length - first.position <= range_bytes


def _range_read(group: Sequence[_Part]) -> RangeRead:
    first, last = group[0][1].ref, group[-1][1].ref
    read = SegmentRange(
        segment_id=first.segment_id,
        tier=first.tier,
        zones=first.zones,
        position=first.position,
        length=last.position + last.length - first.position,
        refs=tuple(located for _, located in group),
    )
    return RangeRead(range=read, slices=tuple(each for each, _ in group))


@dataclass(frozen=True, slots=True)
class SlicePartition(InputPartition):
    """The slices of one task, as Spark's partition."""

    slices: tuple[Slice, ...]


def slices_of(partition: InputPartition) -> tuple[Slice, ...]:
    """The slices that the planner gave to a task.

    Empty for Spark's own placeholder, which Spark makes when the planner returned no partitions.
    """
    return partition.slices if isinstance(partition, SlicePartition) else ()
