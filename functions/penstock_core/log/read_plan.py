"""The bytes that a fetch reads and answers with.

It chooses refs within a budget, joins them into as few ranged gets as they allow, and cuts whole batches from each ref.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock_core.ids import Offset, SegmentId
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.records.record_batch import walk

GAP_BYTES_MAX = 64 * 1024  # reading across a gap of this size is cheaper than a second get


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """One ranged get, `[position, position + length)`, and the refs that lie inside it."""

    segment_id: SegmentId
    tier: Tier
    zones: int
    position: int
    length: int
    refs: tuple[LocatedRef, ...]

    def place_of(self, first: LocatedRef, last: LocatedRef | None = None) -> slice:
        """The place in the range's bytes of a ref's bytes, or of those from the ref `first` to the ref `last`."""
        end = first.ref if last is None else last.ref
        return slice(first.ref.position - self.position, end.position + end.length - self.position)


def choose(
    refs: Iterable[LocatedRef], offset: int, max_bytes: int, max_refs: int, *, is_first: bool
) -> list[LocatedRef]:
    """The refs that cover `offset` and what follows, in order, within `max_bytes` and `max_refs`.

    With `is_first`, one ref is chosen even if it alone is larger than `max_bytes`, so that a fetch always moves on.
    """
    chosen: list[LocatedRef] = []
    for located in refs:
        if located.end_offset <= offset:
            continue
        max_bytes -= located.ref.length
        if max_refs == 0 or (max_bytes < 0 and not (is_first and not chosen)):
            break
        max_refs -= 1
        chosen.append(located)
    return chosen


def join_ranges(refs: Sequence[LocatedRef]) -> list[SegmentRange]:
    """As few ranges as cover all refs: those in one segment with at most `GAP_BYTES_MAX` between them share one."""
    groups: list[list[LocatedRef]] = []
    end = 0
    for located in sorted(refs, key=lambda located: (located.ref.segment_id, located.ref.position)):
        ref = located.ref
        is_near = (
            bool(groups) and groups[-1][0].ref.segment_id == ref.segment_id and ref.position - end <= GAP_BYTES_MAX
        )
        if is_near:
            groups[-1].append(located)
        else:
            groups.append([located])
        end = max(end, ref.position + ref.length) if is_near else ref.position + ref.length
    return [_range(group) for group in groups]


def cut(
    content: memoryview, base_offset: Offset, offset: Offset, max_bytes: int, *, is_first: bool
) -> tuple[int, int, Offset]:
    """The part `[start, end)` of a ref's bytes from the batch with `offset` on, within `max_bytes`, and its end offset.

    `base_offset` is that of the ref. The part has one batch at least when `is_first`. If it is empty, it is `[0, 0)`
    and ends at `offset`.
    """
    start: int | None = None
    end, end_offset = 0, offset
    for position, header in walk(content):
        base_offset = Offset(base_offset + header.last_offset_delta + 1)
        if base_offset <= offset:
            continue
        start = position if start is None else start
        batch_end = position + header.length
        if batch_end - start > max_bytes and not (is_first and end == 0):
            break
        end, end_offset = batch_end, base_offset
    return (start or 0, end, end_offset) if end else (0, 0, end_offset)


def _range(group: Sequence[LocatedRef]) -> SegmentRange:
    first = group[0].ref
    end = max(located.ref.position + located.ref.length for located in group)
    return SegmentRange(
        segment_id=first.segment_id,
        tier=first.tier,
        zones=first.zones,
        position=first.position,
        length=end - first.position,
        refs=tuple(group),
    )
