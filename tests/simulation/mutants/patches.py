"""Mutants that need more than another text in a function: they remember what they have seen."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId, new_segment_id
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.ref import Tier
from penstock_core.log.segment import Segment
from penstock_core.log.timer import delivered
from penstock_core.share.draft import ShareUpdate
from penstock_core.share.record_set import RecordSet
from penstock_core.storage.timer_item import settling
from penstock_core.transaction import Move, MoveOutcome, ShareCommit
from penstock_service.adapters.dynamodb.timers import DynamoDbTimerStore
from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records import append as append_module
from penstock_service.records import fetch as fetch_module
from penstock_service.segments.put_segment import StoredSegment
from penstock_service.transactions import share_commits
from tests.support.service import with_stores

_REMEMBERED_MS = 500.0


def _head_before_item() -> AbstractContextManager[Any]:
    """The head's update goes out before the inline segment's item is put."""
    waiting: dict[SegmentId, Segment] = {}
    original = append_module._append_ref

    def put_later(instance: Any, segment: Segment, *_: Any) -> StoredSegment:
        segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(10))
        waiting[segment_id] = segment
        window = UpdateWindow.open(instance.clock)
        return StoredSegment(segment_id=segment_id, zones=0, unconfirmed_zones=0, window=window, tier=Tier.INLINE)

    def append_first(instance: Any, batch: Any, ref: Any, stored: StoredSegment) -> Any:
        done = original(instance, batch, ref, stored)
        if stored.segment_id in waiting:
            segment = waiting[stored.segment_id]
            instance.stores.inline.put(stored.segment_id, segment.body, segment.crc32c)
        return done

    return patch.multiple(append_module, put_inline=put_later, _append_ref=append_first)


def _lost_between_mark_and_append() -> AbstractContextManager[Any]:
    """The mark of the last timer is a write of its own. If the append's answer is lost, the timer has left already."""
    original = DynamoDbTimerStore.promote

    def promote(self: DynamoDbTimerStore, delivery: Delivery) -> DeliveryOutcome:
        timers = delivery.timers
        fewer = Delivery(key=delivery.key, timers=timers[:-1] or timers, now_ms=delivery.now_ms)
        outcome = original(self, fewer)
        if outcome is DeliveryOutcome.DONE and len(timers) > 1:
            self._client.update_if(self._table, settling(delivered(timers[-1], delivery.now_ms)))
        return outcome

    return patch.object(DynamoDbTimerStore, "promote", promote)


def _burial_without_condition() -> AbstractContextManager[Any]:
    """The transaction of a burial goes by no lock and no wait."""
    original = DynamoDbTransactionStore.move

    def move(self: DynamoDbTransactionStore, moved: Move) -> MoveOutcome:
        blind = [
            replace(each, update=replace(each.update, expected_locks={}, expected_waits={})) for each in moved.shares
        ]
        return original(self, replace(moved, shares=blind))

    return patch.object(DynamoDbTransactionStore, "move", move)


def _done_within_a_transaction() -> AbstractContextManager[Any]:
    """What is finished already passes: the update then changes nothing."""
    original = share_commits._commit

    def commit(instance: Any, group: Any, key: Any, entries: Sequence[Any], state: Any) -> ShareCommit:
        try:
            return original(instance, group, key, entries, state)
        except PenstockError:
            locks = [each.acknowledgement.handed_out for each in entries]
            wanted = [lock.held.ranges for lock in locks if lock is not None]
            if state is None or any(RecordSet(state.unfinished()).only(ranges).ranges for ranges in wanted):
                raise
            return ShareCommit(key=key, update=ShareUpdate(generation=state.generation))

    return patch.object(share_commits, "_commit", commit)


def _heads_are_remembered() -> AbstractContextManager[Any]:
    original = fetch_module._look
    remembered: dict[tuple[int, Any], tuple[float, Any]] = {}

    def look(instance: Any, entries: Any) -> Any:
        class Remembering:
            @staticmethod
            def heads(keys: Sequence[Any]) -> dict[Any, Any]:
                now_ms, whose = instance.clock.monotonic_ms(), id(instance)
                for key, head in instance.stores.log.heads(keys).items():
                    if now_ms - remembered.get((whose, key), (-_REMEMBERED_MS, head))[0] >= _REMEMBERED_MS:
                        remembered[whose, key] = now_ms, head
                return {key: remembered[whose, key][1] for key in keys if (whose, key) in remembered}

        return original(with_stores(instance, log=Remembering()), entries)

    return patch.object(fetch_module, "_look", look)


PATCHES: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "inline: head before item": _head_before_item,
    "lost between mark and append": _lost_between_mark_and_append,
    "share: burial without condition": _burial_without_condition,
    "share: accept done in a transaction": _done_within_a_transaction,
    "heads are remembered": _heads_are_remembered,
}
