"""Defects of share groups: of what an update expects, of what plans decide, and of what is told."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import Filter
from penstock_core.ids import LockId, Offset
from penstock_core.share import acknowledge as acknowledge_plan
from penstock_core.share import acquire as acquire_plan
from penstock_core.share import bury as bury_plan
from penstock_core.share import read_first, share_update, waits
from penstock_core.share.acknowledge import AckAnswer, Acknowledgement, AckResult, AckType
from penstock_core.share.draft import Draft
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareKey, ShareState
from penstock_core.share.share_update import ShareUpdate
from penstock_core.transaction import Move, ShareCommit
from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.share import acknowledge as acknowledge_module
from penstock_service.share.acknowledge import AckEntry
from penstock_service.share.acquire import acquire as acquire_module
from penstock_service.share.acquire import hand_over, look_through
from penstock_service.share.acquire.look import Taken
from penstock_service.share.batches import read_batches
from penstock_service.share.batches.read_batches import FoundBatches
from penstock_service.share.dead_letters import bury, redrive
from penstock_service.transactions import share_commits
from tests.simulation.mutants.mutant import Mutant, Patch


def _deliveries_not_counted() -> Patch:
    original = acquire_plan.HandOut._lock

    def lock(self: acquire_plan.HandOut, records: RecordSet, deliveries: int) -> None:
        original(self, records, deliveries - 1)

    return patch.object(acquire_plan.HandOut, "_lock", lock)


def _burial_without_condition() -> Patch:
    original = DynamoDbTransactionStore.move

    def move(self: DynamoDbTransactionStore, move: Move) -> bool:
        shares = [
            replace(each, update=replace(each.update, expected_locks={}, expected_waits={})) for each in move.shares
        ]
        return original(self, replace(move, shares=shares))

    return patch.object(DynamoDbTransactionStore, "move", move)


def _buried_early() -> Patch:
    def is_last_delivery(config: ShareGroupConfig, deliveries: int) -> bool:
        return config.deliveries_max is not None and deliveries >= config.deliveries_max - 1

    return patch.object(bury_plan, "is_last_delivery", is_last_delivery)


def _open_drifts() -> Patch:
    original = Draft._open_delta
    return patch.object(Draft, "_open_delta", lambda self: max(original(self), -2))


def _done_for_a_retaken_lock() -> Patch:
    def answers(_draft: Draft, _each: Acknowledgement, index: int, rest: RecordSet) -> list[AckAnswer]:
        return [AckAnswer(index=index, ranges=rest.ranges, result=AckResult.DONE)] if rest.ranges else []

    return patch.object(acknowledge_plan, "_answers_of_others", answers)


def _done_after_a_reset() -> Patch:
    original = acknowledge_plan.acknowledge

    def acknowledge(draft: Draft, config: ShareGroupConfig, acknowledgements: Any, now_ms: int) -> Any:
        stale = [replace(each, generation=draft.generation) for each in acknowledgements]
        return original(draft, config, stale, now_ms)

    stack = ExitStack()
    for module in (acknowledge_plan, acquire_plan, read_first):
        stack.enter_context(patch.object(module, "acknowledge", acknowledge))
    return stack


def _key_order_ignored() -> Patch:
    def takes(self: read_first._Ordered, _value: int, *, has_more: bool) -> bool:
        takes = has_more and self._left > 0
        self._left -= takes
        return takes

    return patch.object(read_first._Ordered, "_takes", takes)


def _suspects_not_split() -> Patch:
    return patch.object(acquire_plan, "SHARE_SUSPECT_PARTS", 1)


def _locks_taken_early() -> Patch:
    original = waits.available_ms

    def available_ms(config: ShareGroupConfig, lock_id: LockId, lock: Lock) -> int:
        return original(config, lock_id, lock) - 2_000

    return patch.object(acquire_plan, "available_ms", available_ms)


def _rejected_is_finished() -> Patch:
    original = acknowledge_plan._acknowledge_lock

    def acknowledge_lock(draft: Draft, config: ShareGroupConfig, each: Acknowledgement, *rest: Any) -> None:
        is_reject = each.type is AckType.REJECT
        original(draft, replace(config, dead_letter_topic=None) if is_reject else config, each, *rest)

    return patch.object(acknowledge_plan, "_acknowledge_lock", acknowledge_lock)


def _repeat_takes_again() -> Patch:
    return patch.object(acquire_plan, "locks_of", lambda _state, _nonce: {})


def _unread_is_finished() -> Patch:
    def told(found: FoundBatches, _log_start: int) -> FoundBatches:
        return replace(found, removed=found.unreadable, unreadable=())

    return patch.object(read_batches, "_told", told)


def _not_filtered_again() -> Patch:
    original = hand_over._sift

    def sift(found: FoundBatches, taken: Taken, wanted: Filter | None, records_max: int, budget: Any) -> Any:
        is_fresh = all(each.lock.deliveries == 1 for each in taken.grants)
        return original(found, taken, wanted if is_fresh else None, records_max, budget)

    return patch.object(hand_over, "_sift", sift)


def _unfiltered_dead_letters() -> Patch:
    return patch.object(bury, "filter_of", lambda _config: None)


def _locks_without_batches() -> Patch:
    return patch.object(hand_over, "_among", lambda found, _known: [*found])


def _state_of_a_deleted_group() -> Patch:
    def begun(self: look_through._Search, key: ShareKey) -> ShareState:
        return self._instance.stores.share.create_state(key, Offset(0))

    return patch.object(look_through._Search, "_begun", begun)


def _accepted_without_condition() -> Patch:
    original = share_commits._commit

    def commit(*arguments: Any) -> ShareCommit:
        found = original(*arguments)
        return replace(found, update=replace(found.update, expected_locks={}, expected_waits={}))

    return patch.object(share_commits, "_commit", commit)


def _done_within_a_transaction() -> Patch:
    original = share_commits._commit

    def commit(
        instance: Any, group: Any, key: ShareKey, entries: Sequence[AckEntry], state: ShareState | None
    ) -> ShareCommit:
        """What is finished already passes: the update then changes nothing."""
        try:
            return original(instance, group, key, entries, state)
        except PenstockError:
            if state is None or not _are_finished(state, entries):
                raise
            return ShareCommit(key=key, update=ShareUpdate(generation=state.generation))

    return patch.object(share_commits, "_commit", commit)


def _are_finished(state: ShareState, entries: Sequence[AckEntry]) -> bool:
    locks = [each.acknowledgement.handed_out for each in entries]
    wanted = [lock.held.ranges for lock in locks if lock is not None]
    return not any(RecordSet(state.unfinished()).only(ranges).ranges for ranges in wanted)


def _position_before_the_append() -> Patch:
    """The hidden group goes on first. If the append then fails, the dead letters are lost."""

    original = redrive._Redrive._move

    def move(self: redrive._Redrive, portion: Any, share: ShareCommit, window: UpdateWindow) -> bool:
        self._instance.stores.share.update(share.key, share.update)
        nothing = ShareCommit(key=share.key, update=ShareUpdate(generation=share.update.generation))
        return original(self, portion, nothing, window)

    return patch.object(redrive._Redrive, "_move", move)


def _waiter_not_taken() -> Patch:
    original = Draft.update

    def update(self: Draft) -> ShareUpdate | None:
        found = original(self)
        return None if found is None else replace(found, takes_waiter=False)

    return patch.object(Draft, "update", update)


def _waiter_not_set() -> Patch:
    original = share_update.arming
    return patch.object(acquire_module, "arming", lambda state, now_ms: replace(original(state, now_ms), arms_ms=None))


def _wakes_no_worker() -> Patch:
    return patch.object(acknowledge_module, "wake_workers", lambda _instance, _keys: None)


def _repeat_gives_back() -> Patch:
    """A copy of an acquire gives back what it cannot read, though its client has the records."""
    return patch.object(look_through, "Taken", lambda **facts: Taken(**{**facts, "is_repeat": False}))


SHARE_MUTANTS = [
    Mutant("share: deliveries not counted", "sharing", _deliveries_not_counted),
    Mutant("share: burial without condition", "sharing", _burial_without_condition),
    Mutant("share: buried early", "sharing", _buried_early),
    Mutant("share: open drifts", "sharing", _open_drifts),
    Mutant("share: done for a retaken lock", "sharing", _done_for_a_retaken_lock),
    Mutant("share: done after a reset", "sharing", _done_after_a_reset),
    Mutant("share: key order ignored", "sharing", _key_order_ignored),
    Mutant("share: suspects not split", "sharing", _suspects_not_split),
    Mutant("share: locks taken early", "sharing", _locks_taken_early),
    Mutant("share: rejected is finished", "sharing", _rejected_is_finished),
    Mutant("share: repeat takes again", "sharing", _repeat_takes_again),
    Mutant("share: unread is finished", "sharing", _unread_is_finished),
    Mutant("share: repeat gives back", "sharing", _repeat_gives_back),
    Mutant("share: filter not applied again", "sharing", _not_filtered_again),
    Mutant("share: dead letters not filtered", "sharing", _unfiltered_dead_letters),
    Mutant("share: locks without their batches", "sharing,repeating,accepting", _locks_without_batches),
    Mutant("share: state of a deleted group", "sharing", _state_of_a_deleted_group),
    Mutant("share: accepted in a transaction without a condition", "accepting", _accepted_without_condition),
    Mutant("share: accept done in a transaction", "accepting", _done_within_a_transaction),
    Mutant("share: redrive goes on before its append", "redriving", _position_before_the_append),
    Mutant("share: waiter not taken", "waking", _waiter_not_taken),
    Mutant("share: waiter not set", "waking", _waiter_not_set),
    Mutant("share: worker not woken", "waking", _wakes_no_worker),
]
