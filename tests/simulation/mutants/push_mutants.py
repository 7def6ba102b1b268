"""Defects of push subscriptions: lanes and waiters that forget somebody; records lost, doubled, or buried."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.ids import Offset
from penstock_core.push import attempt
from penstock_core.push.attempt import fail_record
from penstock_core.push.batch import PushBatch, PushRecord
from penstock_core.push.delivery import DeliveryState, commit
from penstock_core.push.lane import LaneState
from penstock_service.index.heads import create_heads
from penstock_service.push import copy_to_topic as copy_module
from penstock_service.push import deliver as deliver_module
from penstock_service.push import deliver_ordered
from penstock_service.push.deliver import Ending
from penstock_service.push.lane_work import LaneResult
from penstock_service.topics import alter_topic
from tests.simulation.mutants.mutant import Mutant, Patch
from tests.simulation.mutants.push_failure_mutants import apart

_Delivery = deliver_module._Delivery


def _deleted_before_arming() -> Patch:
    return patch.object(_Delivery, "_arm", lambda *_: True)


def _armed_before_release() -> Patch:
    """The heads are armed while the lane is still held, and not again."""
    release, arm = _Delivery._release, _Delivery._arm

    def armed_first(self: Any, held: LaneState, result: Any) -> Any:
        is_done = result.is_unfinished or arm(self, result)
        return release(self, held, result if is_done else replace(result, is_unfinished=True))

    return patch.multiple(_Delivery, _release=armed_first, _arm=lambda *_: True)


def _slice_without_successor() -> Patch:
    return patch.object(deliver_module, "deliver_ordered", _as_if_finished)


def _as_if_finished(work: Any) -> Any:
    result = deliver_ordered.deliver_ordered(work)
    return replace(result, is_unfinished=False)


def _pause_deletes_its_message() -> Patch:
    return patch.object(_Delivery, "_leave", lambda *_: Ending.DELETE)


def _armed_head_in_place_of_a_message() -> Patch:
    """A batch that waits for more records, and for the end of its window, has a waiter only, and no message."""

    def without_sleeper(**fields: Any) -> Any:
        has_waiter = bool(fields.get("ends")) and not fields["is_unfinished"]
        return LaneResult(**{**fields, "due_ms": None, "look_ms": None} if has_waiter else fields)

    return patch.object(deliver_ordered, "LaneResult", without_sleeper)


def _refused_take_deletes() -> Patch:
    """A lane that is held by the own message, or by one that knows less, is no reason to come again."""
    return patch.object(_Delivery, "_hide", lambda *_: Ending.DELETE)


def _head_not_born_armed() -> Patch:
    original = create_heads

    def unarmed(*arguments: Any, **_: Any) -> None:
        original(*arguments)

    return patch.object(alter_topic, "create_heads", unarmed)


def _buried_without_evidence() -> Patch:
    return patch.object(attempt, "_is_well", lambda *_: True)


def _outage_that_never_ends() -> Patch:
    """A target that is broken for one record only is never found out."""
    return patch.object(attempt, "_is_well", lambda *_: False)


def _copy_beside_its_transaction() -> Patch:
    return patch.object(copy_module, "move_with_state", apart)


def _half_committed_twice() -> Patch:
    """A success of the lower half moves the offset over the upper one."""
    original = commit

    def whole(state: DeliveryState, end: Offset, *times_ms: int) -> DeliveryState:
        trouble = state.trouble
        return original(state, end if trouble is None else max(end, trouble.range_end), *times_ms)

    return patch.object(deliver_ordered, "commit", whole)


def _named_record_passed_over() -> Patch:
    """The records that a target names are done, as those before them are."""
    original = fail_record

    def passed(state: DeliveryState, config: Any, named: Any, *times_ms: int) -> DeliveryState:
        failed = original(state, config, named, *times_ms)
        return replace(failed, offset=Offset(named.offset + 1), trouble=None)

    return patch.object(deliver_ordered, "fail_record", passed)


def _batch_in_another_order() -> Patch:
    original = PushBatch

    def reversed_batch(*, records: Sequence[PushRecord], **named: Any) -> Any:
        return original(records=[*reversed(records)], **named)

    return patch.object(deliver_ordered, "PushBatch", reversed_batch)


PUSH_MUTANTS = [
    Mutant("message deleted before arming", "pushing", _deleted_before_arming),
    Mutant("armed before release", "pushing", _armed_before_release),
    Mutant("slice without a successor", "pushing", _slice_without_successor),
    Mutant("pause deletes its message", "pushing", _pause_deletes_its_message),
    Mutant("armed head in place of a message", "pushing", _armed_head_in_place_of_a_message),
    Mutant("held lane deletes its own message", "pushing", _refused_take_deletes),
    Mutant("head not born armed", "pushing", _head_not_born_armed),
    Mutant("buried without evidence", "pushing", _buried_without_evidence),
    Mutant("copy beside its transaction", "pushing", _copy_beside_its_transaction),
    Mutant("half committed as the whole", "pushing", _half_committed_twice),
    Mutant("named record passed over", "pushing", _named_record_passed_over),
    Mutant("batch in another order", "pushing", _batch_in_another_order),
    Mutant("broken for one record for ever", "pushing", _outage_that_never_ends),
]
