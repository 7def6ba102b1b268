"""Move what a quiet partition keeps in its tail to the archive, so that its bytes leave the zones too (docs/adr/0030).

A tail of a page or more is rolled first, and compaction moves the page. A shorter tail is moved in place:

1. The upload of one segment with the bytes of the refs that move, as they are. A tail that is shorter than a page has
   60 MiB at most.
2. One transaction exchanges these refs in the head, and notes the segments that it retires.

A run may die between the two: then no ref names the segment, and the sweep removes it. The transaction comes at most
`COMPACTION_RUN_MS_MAX` after the segment got its id, as that of a swap (rewrite_run.py). It needs the tail as the run
has read it, but for appends behind and for bits of zones, which an archived ref has not. Two movers, or a mover and a
roller, meet at the head: the first of them wins, and the other's update is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock_core.compaction.merging import zonal_bytes
from penstock_core.compaction.tail_move import TailMove, has_moved, live_tail, refs_to_move, tail_move, with_bits_of
from penstock_core.ids import SEGMENT_ID_BYTES, PartitionKey, SegmentId, new_segment_id, segment_time_ms
from penstock_core.limits import COMPACTION_RUN_MS_MAX, COMPACTION_SWAP_ATTEMPTS_MAX, STALE_MS, TAIL_ROLL_REFS
from penstock_core.log.ref import LocatedRef, stored_bytes
from penstock_core.log.segment import TocEntry, encode_end
from penstock_service.compaction.rewrite_run import CompactionRun, RewriteResult, read_batches
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.shorten_head import GrownHead, shorten_heads


def roll_old_tail(run: CompactionRun) -> CompactionRun:
    """Rolls a tail that has refs to move and a page or more, so that compaction moves the pages.

    Its writers should have rolled it, and have failed or died. Costs nothing otherwise. Else two reads of the head, and
    what `shorten_heads` costs. Gives the run with the newer head; the old one if the partition is gone.
    """
    if len(run.head.tail) < TAIL_ROLL_REFS or not _moving(run):
        return run
    instance, log = run.instance, run.instance.stores.log
    window = UpdateWindow.open(instance.clock)
    head = log.heads([run.key]).get(run.key)
    if head is not None:
        shorten_heads(instance, window, [GrownHead(key=run.key, head=head, added_refs=len(head.tail))])
    return replace(run, head=log.heads([run.key]).get(run.key) or run.head)


def move_tail(run: CompactionRun) -> RewriteResult | None:
    """Moves the refs of the tail that are due; None if there are none.

    Costs one or more gets for each segment that they name, one upload and one transaction; one read of the head more if
    that is refused. Not swapped: another writer was faster, or the tail has a page still. Raises what `rewrite_run`
    raises.
    """
    moving = _moving(run)
    if not moving:
        return None
    if len(run.head.tail) >= TAIL_ROLL_REFS:
        return RewriteResult(is_swapped=False)
    instance, refs = run.instance, [each.ref for each in moving]
    segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    instance.stores.archive.upload(segment_id, _chunks(run, moving))
    is_moved = _exchange(run, tail_move(run.head, moving, segment_id, instance.clock.now_ms()), segment_id)
    size = stored_bytes(refs)
    return RewriteResult(
        is_swapped=is_moved,
        refs_before=len(refs),
        refs_after=len(refs),
        bytes_before=size,
        bytes_after=size,
        records_after=sum(ref.record_count for ref in refs),
    )


def stale_bytes(run: CompactionRun) -> int:
    """The bytes of the tail that have lain in the zones for `STALE_MS`."""
    return zonal_bytes((each.ref for each in live_tail(run.head)), run.instance.clock.now_ms(), STALE_MS)


def _moving(run: CompactionRun) -> Sequence[LocatedRef]:
    return refs_to_move(run.head, run.instance.clock.now_ms(), run.settings)


def _chunks(run: CompactionRun, moving: Sequence[LocatedRef]) -> Iterator[bytes]:
    """The bytes of the new segment: those of each ref, and a part of the table of contents for each."""
    for _, _, batch in read_batches(run, moving):
        yield bytes(batch)
    yield encode_end(_parts(run.key, moving))


def _parts(key: PartitionKey, moving: Sequence[LocatedRef]) -> list[TocEntry]:
    parts: list[TocEntry] = []
    position = 0
    for ref in (each.ref for each in moving):
        parts.append(
            TocEntry(
                topic_id=key.topic_id,
                partition=key.partition,
                position=position,
                length=ref.length,
                offset_span=ref.offset_span,
                max_timestamp_ms=ref.max_timestamp_ms,
            )
        )
        position += ref.length
    return parts


def _exchange(run: CompactionRun, move: TailMove, segment_id: SegmentId) -> bool:
    """Exchanges the refs; false if another writer has changed them."""
    log = run.instance.stores.log
    for _ in range(COMPACTION_SWAP_ATTEMPTS_MAX):
        now_ms = run.instance.clock.now_ms()
        if now_ms - segment_time_ms(segment_id) > COMPACTION_RUN_MS_MAX:
            return False  # the machine may have slept since the upload
        if run.instance.stores.compaction.move_tail(run.key, replace(move, moved_ms=now_ms)):
            return True
        head = log.heads([run.key]).get(run.key)
        if head is None:
            return False
        if has_moved(head, move):
            return True  # by an attempt whose answer was lost
        again = with_bits_of(move, head)
        if again is None:
            return False
        move = again
    return False
