"""Slices: what one task reads of one partition, as refs of the index, in the few bytes that the index keeps them in.

A million refs are 57 MB on the driver and in the tasks' descriptions, where objects would be ten times that.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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


def ranges_of(located: Iterable[LocatedRef], range_bytes: int) -> Iterator[SegmentRange]:
    """The ranged gets that read the refs in their order: neighbours in one segment share one of `range_bytes` at most,
    where little lies between them."""
    group: list[LocatedRef] = []
    for each in located:
        if group and not _is_next(group, each, range_bytes):
            yield _range(group)
            group = []
        group.append(each)
    if group:
        yield _range(group)


def _is_next(group: Sequence[LocatedRef], each: LocatedRef, range_bytes: int) -> bool:
    first, last = group[0].ref, group[-1].ref
    gap = each.ref.position - (last.position + last.length)
    end = each.ref.position + each.ref.length
    is_same = (each.ref.segment_id, each.ref.tier) == (last.segment_id, last.tier)
    return is_same and 0 <= gap <= GAP_BYTES_MAX and end - first.position <= range_bytes


def _range(group: Sequence[LocatedRef]) -> SegmentRange:
    first, last = group[0].ref, group[-1].ref
    return SegmentRange(
        segment_id=first.segment_id,
        tier=first.tier,
        zones=first.zones,
        position=first.position,
        length=last.position + last.length - first.position,
        refs=tuple(group),
    )
