"""A jump: offsets that no record will ever have, because a restore could have given them twice (docs/adr/0078).

A restore brings a log back to an older end. Readers may have read up to the newer, lost end. So the log goes on behind
every offset that was ever given. The head notes the offsets in between, and one ref for each jump covers them. The ref
holds an empty batch, as compaction leaves them:

```
 harmed     … 2999 │ 3000 … 4999                       next offset 5000
 restored   … 2999 │                                   next offset 3000
 after      … 2999 │ jump [3000, 6000) │ 6000 …        a reader at 3000 goes on at 6000, one at 4500 is told so
```
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.ids import Offset
from penstock_core.limits import JUMP_MARGIN_OFFSETS, JUMP_OFFSETS_MAX, LOST_HEAD_JUMP_OFFSETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """The offsets `[start, end)`, which no record has. A reader that has read all below `start` goes on at `end`."""

    start: Offset
    end: Offset

    def holds(self, offset: int) -> bool:
        """True if a position lies within: its reader has read records that are lost. `start` itself is before it."""
        return self.start < offset < self.end


def jumps_over(next_offset: Offset, harmed_next_offset: Offset | None) -> tuple[Jump, ...]:
    """The jump of a log that ends at `next_offset`, cut into pieces of `JUMP_OFFSETS_MAX`, as one batch may cover.

    `harmed_next_offset` is where the log ended when it was harmed, None if it is not known.
    """
    margin = LOST_HEAD_JUMP_OFFSETS if harmed_next_offset is None else JUMP_MARGIN_OFFSETS
    end = max(next_offset, harmed_next_offset or 0) + margin
    starts = range(next_offset, end, JUMP_OFFSETS_MAX)
    return tuple(Jump(start=Offset(start), end=Offset(min(end, start + JUMP_OFFSETS_MAX))) for start in starts)


def past(jumps: Sequence[Jump], offset: int) -> Offset:
    """The first offset from this one on that no jump holds. `jumps` are in order, as all lists of them here."""
    for jump in jumps:
        if jump.start <= offset < jump.end:
            offset = jump.end
    return Offset(offset)


def ranges_of(jumps: Sequence[Jump]) -> tuple[tuple[int, int], ...]:
    """The offsets of the jumps, as half-open ranges."""
    return tuple((jump.start, jump.end) for jump in jumps)


def count_between(jumps: Sequence[Jump], start: int, end: int) -> int:
    """The number of offsets in `[start, end)` that lie in no jump."""
    jumped = sum(max(0, min(end, jump.end) - max(start, jump.start)) for jump in jumps)
    return max(0, end - start - jumped)


def advanced(jumps: Sequence[Jump], offset: int, count: int) -> int:
    """The position behind `count` offsets from this one on, those in jumps not counted. It lies in no jump."""
    for jump in jumps:
        if offset + count <= jump.start or jump.end <= offset:
            continue
        count -= max(0, jump.start - offset)
        offset = jump.end
    return offset + count
