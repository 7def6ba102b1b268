"""Defects of arming and of waking."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.index import Head, Waiter
from penstock_core.log.ref import Ref
from penstock_core.log.wake_up import WakeUp
from penstock_service.adapters.dynamodb import log as dynamodb_log
from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_service.groups import look_at_watched as still_armed_module
from penstock_service.instance.instance import Instance
from penstock_service.records import append as append_module
from penstock_service.records import wake_readers
from penstock_service.records.append import PartitionBatches
from penstock_service.records.append_in_sequence import AppendOutcome
from penstock_service.segments.put_segment import StoredSegment
from penstock_service.transactions import commit_transaction as commit_module
from tests.simulation.clients import waiting_reader
from tests.simulation.mutants.mutant import Mutant, Patch

Wakes = Callable[[Sequence[PartitionKey], Iterable[Any]], list[WakeUp]]


def _waiter_is_not_seen() -> Patch:
    original = dynamodb_log._after_append
    return patch.object(
        dynamodb_log, "_after_append", lambda *arguments: replace(original(*arguments), took_waiter=False)
    )


def _woken_before_the_update() -> Patch:
    original = append_module._append_ref

    def append(instance: Instance, batch: PartitionBatches, ref: Ref, stored: StoredSegment) -> AppendOutcome:
        heads = instance.stores.log.heads([batch.key])
        wake_readers.wake_beside(instance, wake_readers.wake_ups_of_heads(heads), lambda: None)
        return replace(original(instance, batch, ref, stored), must_wake=False)

    return patch.object(append_module, "_append_ref", append)


def _repeat_wakes_nobody() -> Patch:
    return _wake_ups_are(
        lambda original, keys, outcomes: original(
            keys, [replace(each, must_wake=False) if _is_repeat(each) else each for each in outcomes]
        )
    )


def _lost_answer_wakes_nobody() -> Patch:
    return _wake_ups_are(
        lambda original, keys, outcomes: [each for each in original(keys, outcomes) if each.next_offset is not None]
    )


def _is_repeat(outcome: Any) -> bool:
    return isinstance(outcome, AppendOutcome) and outcome.head is None


def _wake_ups_are(mutated: Callable[[Wakes, Sequence[PartitionKey], Iterable[Any]], list[WakeUp]]) -> Patch:
    original = wake_readers.wake_ups_after
    return patch.object(append_module, "wake_ups_after", lambda keys, outcomes: mutated(original, keys, outcomes))


def _transaction_wakes_nobody() -> Patch:
    def none(_heads: Mapping[PartitionKey, Head]) -> list[WakeUp]:
        return []

    return patch.object(commit_module, "wake_ups_of_heads", none)


def _transaction_takes_the_waiter() -> Patch:
    original = DynamoDbTransactionStore._head_update

    def head_update(*arguments: Any) -> dict[str, Any]:
        update = original(*arguments)
        return {**update, "UpdateExpression": f"{update['UpdateExpression']} REMOVE {Waiter.READER.value}"}

    return patch.object(DynamoDbTransactionStore, "_head_update", head_update)


def _armed_by_a_waiter_alone() -> Patch:
    def is_armed_at(head: Head, _offset: Offset) -> bool:
        return head.waiter_ms is not None

    return patch.object(still_armed_module, "is_armed_at", is_armed_at)


def _still_armed_without_a_look() -> Patch:
    def still_armed(_instance: Instance, positions: Mapping[PartitionKey, Offset]) -> frozenset[PartitionKey]:
        return frozenset(positions)

    return patch.object(waiting_reader, "still_armed", still_armed)


WAITING_MUTANTS = [
    Mutant("waiter not seen", "waiting", _waiter_is_not_seen),
    Mutant("woken before the update", "waiting", _woken_before_the_update),
    Mutant("repeat wakes nobody", "waiting", _repeat_wakes_nobody),
    Mutant("lost answer wakes nobody", "waiting", _lost_answer_wakes_nobody),
    Mutant("transaction wakes nobody", "waiting", _transaction_wakes_nobody),
    Mutant("transaction takes the waiter", "waiting", _transaction_takes_the_waiter),
    Mutant("armed by a waiter alone", "waiting", _armed_by_a_waiter_alone),
    Mutant("still armed without a look", "waiting", _still_armed_without_a_look),
]
