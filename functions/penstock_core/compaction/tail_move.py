"""The move of a tail's refs to the archive, in place (docs/adr/0030). Pure.

The refs of a partition that gets few records stay in its head. A move copies their bytes, from zones or from items of
the log table, into one segment of the archive. Then it exchanges the refs one for one:

```
 before   zonal    zonal    zonal    young
 after    archive  archive  archive  young      same offsets, producers, tags and times, another segment
```

Only a tail that is shorter than a page is moved. Until a roll raises the tail base, such a tail only grows. So nobody
has seen 16 refs behind this base yet, and no roller has put a page with the old refs, nor will it. The next page of
this tail has the new ones, whoever rolls it (docs/adr/0019). A longer tail is rolled first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.compaction.merging import CompactionSettings, zonal_bytes
from penstock_core.ids import Offset, SegmentId, segment_time_ms
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef, Ref, Tier
from penstock_core.log.retention import written_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TailMove:
    """An exchange of refs in a tail for refs of the archive to the same records.

    `old` and `new` have the refs by their places in the tail, the same places in both. The last of them ends at
    `end_offset`. The conditions: the tail begins at `tail_base`, it is shorter than a page, and it has the old refs in
    their places, zones' bits included.
    """

    tail_base: Offset
    end_offset: Offset
    old: Mapping[int, Ref]
    new: Mapping[int, Ref]
    moved_ms: int

    @property
    def retired(self) -> frozenset[SegmentId]:
        """The segments that this partition may name no more. Readers may hold refs to them for a while."""
        return frozenset(ref.segment_id for ref in self.old.values())


def live_tail(head: Head) -> tuple[LocatedRef, ...]:
    """The tail's refs that readers may read. The bytes of those below the log start may be gone."""
    return tuple(each for each in head.located_tail() if each.end_offset > head.log_start_offset)


def refs_to_move(head: Head, now_ms: int, settings: CompactionSettings) -> tuple[LocatedRef, ...]:
    """The refs of the tail that move now. There are none unless one has lain outside the archive for `zonal_ms_max`.

    Those older than `age_ms_min` go along, so that a partition with an append now and then is not written each hour.
    Expiring items stay: DynamoDB removes them by their TTL, at no cost.
    """
    live = live_tail(head)
    max_ms = settings.zonal_ms_max
    if max_ms is None or not zonal_bytes((each.ref for each in live), now_ms, max_ms):
        return ()
    unmoved = (each for each in live if each.ref.tier in (Tier.ZONAL, Tier.INLINE))
    return tuple(each for each in unmoved if now_ms - segment_time_ms(each.ref.segment_id) >= settings.age_ms_min)


def tail_move(head: Head, moving: Sequence[LocatedRef], segment_id: SegmentId, now_ms: int) -> TailMove:
    """The move of these refs of the tail to a segment that has their bytes one behind the other, in this order."""
    places = {located.base_offset: place for place, located in enumerate(head.located_tail())}
    old: dict[int, Ref] = {}
    new: dict[int, Ref] = {}
    position = 0
    for located in moving:
        place, ref = places[located.base_offset], located.ref
        old[place] = ref
        new[place] = replace(
            ref,
            segment_id=segment_id,
            position=position,
            zones=0,
            tier=Tier.ARCHIVE,
            appended_ms=written_ms(ref),
        )
        position += ref.length
    return TailMove(tail_base=head.tail_base, end_offset=moving[-1].end_offset, old=old, new=new, moved_ms=now_ms)


def has_moved(head: Head, move: TailMove) -> bool:
    """True if the head shows this very move. No other one has its segment."""
    tail = dict(enumerate(head.tail))
    return head.tail_base == move.tail_base and all(tail.get(place) == ref for place, ref in move.new.items())


def with_bits_of(move: TailMove, head: Head) -> TailMove | None:
    """The move from the refs as `head` has them, or None if they differ from those of the move in more than bits.

    A repair may have set bits of zones meanwhile. An archived ref has none, so nothing else of the move changes.
    """
    found = {place: ref for place, ref in enumerate(head.tail) if place in move.old}
    is_same = {place: replace(ref, zones=0) for place, ref in found.items()} == {
        place: replace(ref, zones=0) for place, ref in move.old.items()
    }
    return replace(move, old=found) if head.tail_base == move.tail_base and is_same else None
