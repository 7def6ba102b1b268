"""Defects put into inline segments: their puts, their reads, their move to the archive and their sweep."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, new_segment_id, segment_time_ms
from penstock_core.log.index import Head
from penstock_core.log.ref import Tier
from penstock_core.log.segment import Segment
from penstock_service.adapters.dynamodb.inline import DynamoDbInlineStore
from penstock_service.compaction import move_tail as move_module
from penstock_service.compaction import rewrite_run as rewrite_module
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records import append as append_module
from penstock_service.retention import mark_live as mark_module
from penstock_service.retention import sweep as sweep_module
from penstock_service.retention import sweep_folders as folders_module
from penstock_service.retention.mark_live import LiveSegments
from penstock_service.segments import put_segment as put_module
from penstock_service.segments import read_refs as read_module
from penstock_service.segments.put_segment import StoredSegment
from penstock_service.stores import Stores
from tests.simulation.mutants.mutant import Mutant, Patch

_REPLICA_LAG_MS = 1_000


def _head_before_item() -> Patch:
    """The head's update goes out before the item is put."""
    waiting: dict[SegmentId, Segment] = {}
    original = append_module._append_ref

    def put_later(instance: Any, segment: Segment) -> StoredSegment:
        window = UpdateWindow.open(instance.clock)
        segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
        waiting[segment_id] = segment
        return StoredSegment(segment_id=segment_id, zones=0, unconfirmed_zones=0, window=window, tier=Tier.INLINE)

    def append_first(instance: Any, batch: Any, ref: Any, stored: StoredSegment) -> Any:
        done = original(instance, batch, ref, stored)
        if stored.segment_id in waiting:
            segment = waiting[stored.segment_id]
            instance.stores.inline.put(stored.segment_id, segment.body, segment.crc32c)
        return done

    return patch.multiple(append_module, put_inline=put_later, _append_ref=append_first)


def _failed_put_counts() -> Patch:
    original = put_module.put_inline

    def put(instance: Any, segment: Segment) -> StoredSegment:
        try:
            return original(instance, segment)
        except PenstockError:
            window = UpdateWindow.open(instance.clock)
            segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
            return StoredSegment(segment_id=segment_id, zones=0, unconfirmed_zones=0, window=window, tier=Tier.INLINE)

    return patch.object(append_module, "put_inline", put)


def _removed_before_the_move() -> Patch:
    """The mover removes the items that it has copied, and then exchanges their refs."""
    original = move_module._exchange

    def exchange(run: Any, move: Any, segment_id: SegmentId) -> bool:
        _remove(run.instance, move.old.values())
        return original(run, move, segment_id)

    return patch.object(move_module, "_exchange", exchange)


def _removed_with_the_move() -> Patch:
    """The mover removes the items right behind the exchange: readers may hold refs to them."""
    original = move_module._exchange

    def exchange(run: Any, move: Any, segment_id: SegmentId) -> bool:
        is_moved = original(run, move, segment_id)
        if is_moved:
            _remove(run.instance, move.old.values())
        return is_moved

    return patch.object(move_module, "_exchange", exchange)


def _removed_before_the_merge() -> Patch:
    """Compaction removes the items that it has copied, and then exchanges the pages that name them."""
    original = rewrite_module._swap

    def swap(run: Any, exchange: Any, begun_ms: int) -> bool:
        _remove(run.instance, [ref for page in exchange.old for ref in page.refs])
        return original(run, exchange, begun_ms)

    return patch.object(rewrite_module, "_swap", swap)


def _swept_without_grace() -> Patch:
    """The sweep takes the log table's segments for garbage whatever their age."""
    original = folders_module.sweep_folder

    def sweep_folder(store: Any, folder: str, live: LiveSegments, **how: Any) -> Any:
        if store.zone == "inline":
            return original(store, folder, LiveSegments(since_ms=0, cutoff_ms=2**62, ids=live.ids), **how)
        return original(store, folder, live, **how)

    return patch.object(sweep_module, "sweep_folder", sweep_folder)


def _refs_not_marked() -> Patch:
    """The sweep marks what the refs to zones and archive name, and no inline segment of a tail."""
    original = mark_module._mark_refs

    def mark(instance: Any, key: Any, head: Head, *rest: Any) -> None:
        nowhere = SegmentId(bytes(SEGMENT_ID_BYTES))
        tail = tuple(replace(ref, segment_id=nowhere) if ref.tier is Tier.INLINE else ref for ref in head.tail)
        original(instance, key, replace(head, tail=tail), *rest)

    return patch.object(mark_module, "_mark_refs", mark)


def _items_are_not_swept() -> Patch:
    def without(stores: Stores) -> list[Any]:
        earlier = [zone.earlier for zone in stores.zones if zone.earlier is not None]
        return [*stores.zones, *earlier, stores.archive]

    return patch.object(folders_module, "swept_stores", without)


def _reads_see_no_newest() -> Patch:
    """Reads answer from a replica that has not the newest items yet: what is missing there counts as empty."""
    original = DynamoDbInlineStore.get_wholes

    def late(store: DynamoDbInlineStore, segment_ids: Sequence[SegmentId]) -> Any:
        young_ms = store._client._clock.now_ms() - _REPLICA_LAG_MS
        return original(store, [each for each in segment_ids if segment_time_ms(each) < young_ms])

    return patch.object(DynamoDbInlineStore, "get_wholes", late)


def _bytes_of_another_part() -> Patch:
    """A range begins where the item begins, whichever partition it belongs to, and its batches are not checked."""
    return patch.object(read_module, "_outcome", lambda wanted, bodies: bodies[wanted.segment_id][: wanted.length])


def _remove(instance: Any, refs: Any) -> None:
    instance.stores.inline.delete([ref.segment_id for ref in refs if ref.tier is Tier.INLINE])


INLINE_MUTANTS = [
    Mutant("inline: head before item", "inline", _head_before_item),
    Mutant("inline: failed put counts", "inline", _failed_put_counts),
    Mutant("inline: removed before its move", "inline,tiering", _removed_before_the_move),
    Mutant("inline: removed with its move", "inline,tiering", _removed_with_the_move),
    Mutant("inline: removed before its merge", "inline,compaction", _removed_before_the_merge),
    Mutant("inline: swept without grace", "inline,sweep", _swept_without_grace),
    Mutant("inline: refs not marked", "inline,sweep", _refs_not_marked),
    Mutant("inline: not swept", "inline", _items_are_not_swept),
    Mutant("inline: replica without the newest", "inline", _reads_see_no_newest),
    Mutant("inline: bytes of another part", "inline", _bytes_of_another_part),
]
