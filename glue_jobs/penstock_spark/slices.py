"""Slices: what one task reads of one partition, as refs of the index, in the few bytes that the index keeps them in.

A million refs are 57 MB on the driver and in the tasks' descriptions, where objects would be ten times that.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from penstock_core.ids import Offset
from penstock_core.keys import PartitionKey
from penstock_core.read_plan import GAP_BYTES_MAX, SegmentRange
from penstock_core.ref import LocatedRef, decode_refs, encode_refs, locate


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Refs of one partition, one behind the other, the first at `base_offset`; wanted are the records in
    `[start_offset, end_offset)`, and each ref holds some of these offsets."""

    topic: str
    key: PartitionKey
    start_offset: Offset
    end_offset: Offset
    base_offset: Offset
    refs: bytes

    def located(self) -> Iterator[LocatedRef]:
        return locate(self.base_offset, decode_refs(self.refs))


def slice_of(
    topic: str, key: PartitionKey, start_offset: int, end_offset: int, located: Sequence[LocatedRef]
) -> Slice | None:
    """Those of the refs, which stand one behind the other, that hold offsets of `[start_offset, end_offset)`; None if
    there are none."""
    wanted = [each for each in located if start_offset < each.end_offset and each.base_offset < end_offset]
    if not wanted:
        return None
    return Slice(
        topic=topic,
        key=key,
        start_offset=Offset(max(start_offset, wanted[0].base_offset)),
        end_offset=Offset(min(end_offset, wanted[-1].end_offset)),
        base_offset=wanted[0].base_offset,
        refs=encode_refs(each.ref for each in wanted),
    )


def pack(slices: Iterable[Slice], partition_bytes: int) -> Iterator[tuple[Slice, ...]]:
    """The slices, joined and cut so that each group has `partition_bytes` at most, or a single ref that is larger."""
    group: list[list[tuple[Slice, LocatedRef]]] = []  # runs of refs that follow each other in one partition
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
class Wanted:
    """One ranged get, and of each of its refs the slice that it is for."""

    range: SegmentRange
    slices: tuple[Slice, ...]

    def by_slice(self) -> "list[Wanted]":
        """The same refs, with a get for each run of them that one slice has."""
        parts = list(zip(self.slices, self.range.refs, strict=True))
        return [_wanted(list(run)) for _, run in groupby(parts, key=itemgetter(0))]


def ranges_of(slices: Iterable[Slice], range_bytes: int) -> Iterator[Wanted]:
    """The ranged gets that read the slices' refs in their order: neighbours in one segment share one of `range_bytes`
    at most, where little lies between them."""
    return _joined(((each, located) for each in slices for located in each.located()), range_bytes)


def shared_ranges(slices: Sequence[Slice], range_bytes: int) -> Iterator[Wanted]:
    """The same, where neighbours may also be of several partitions of a topic: those that were appended by one request.

    Each partition's refs come in their order, and all of one topic before the next one's.
    """
    for _, of_topic in groupby(slices, key=lambda each: each.topic):
        partitions: dict[PartitionKey, list[Slice]] = {}
        for each in of_topic:
            partitions.setdefault(each.key, []).append(each)
        yield from _joined(_by_segment(list(partitions.values())), range_bytes)


_Part: TypeAlias = tuple[Slice, LocatedRef]


def _by_segment(partitions: Sequence[Sequence[Slice]]) -> Iterator[_Part]:
    """The refs of the first partition in their order, and with each of its segments what others have there, if that is
    what comes next for them; then those that are left of the second, and so on."""
    refs = [((each, located) for each in slices for located in each.located()) for slices in partitions]
    following: list[_Part | None] = [next(each, None) for each in refs]
    waiting: dict[object, list[int]] = {}  # by segment: the partitions whose next ref lies there

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


def _joined(parts: Iterable[_Part], range_bytes: int) -> Iterator[Wanted]:
    group: list[_Part] = []
    for part in parts:
        if group and not _is_next(group, part, range_bytes):
            yield _wanted(group)
            group = []
        group.append(part)
    if group:
        yield _wanted(group)


def _is_next(group: Sequence[_Part], part: _Part, range_bytes: int) -> bool:
    first, last, ref = group[0][1].ref, group[-1][1].ref, part[1].ref
    gap = ref.position - (last.position + last.length)
    is_same = (ref.segment_id, ref.tier) == (last.segment_id, last.tier)
    return is_same and 0 <= gap <= GAP_BYTES_MAX and ref.position + ref.length - first.position <= range_bytes


def _wanted(group: Sequence[_Part]) -> Wanted:
    first, last = group[0][1].ref, group[-1][1].ref
    read = SegmentRange(
        segment_id=first.segment_id,
        tier=first.tier,
        zones=first.zones,
        position=first.position,
        length=last.position + last.length - first.position,
        refs=tuple(located for _, located in group),
    )
    return Wanted(range=read, slices=tuple(each for each, _ in group))
