"""Defects of push subscriptions: what failures lead to, parallel mode, deletions, frozen deliveries, and the look.

These are not here, because nothing can tell them from the service:

- a lock that is renewed late: nobody renews the lock of a lane;
- an acknowledgement whose answer is lost and counts as accepted: a lane forgets its entries in any case, and the
  records come again when their lock ends;
- a full batch that does not start the next lane: the same lane takes the other records, later.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from penstock_core.push import window as overdue
from penstock_core.push.attempt import Facts, fail
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState
from penstock_core.push.lane import FREE, LaneState, lane_of
from penstock_core.push.parallel_attempt import Fate, fail_parallel
from penstock_core.transaction import DeliveryCommit
from penstock_service.push import bury as bury_module
from penstock_service.push import deliver as deliver_module
from penstock_service.push import deliver_ordered
from penstock_service.push import look as look_module
from penstock_service.push.lane_work import LaneWork
from penstock_service.push.parallel import deliver_parallel
from penstock_service.push.parallel.held_records import HeldRecords
from penstock_service.push.subscriptions import partitions_of
from penstock_service.share.dead_letters.move_records import move_records
from tests.simulation.mutants.mutant import Mutant, Patch

_Delivery, _Lane = deliver_module._Delivery, deliver_parallel._ParallelLane
_Partition = deliver_ordered._Partition


def apart(instance: Any, key: Any, moved: Any, state: Any, window: Any) -> Any:
    """Records are moved whatever another delivery has done meanwhile."""
    old = instance.stores.push.find_deliveries([key]).get(key)
    again = replace(state, version=1 if old is None else old.version + 1)
    done = move_records(instance, moved, DeliveryCommit(key=key, state=again), window)
    return again if done else apart(instance, key, moved, state, window)


def _refused_commit_taken_for_done() -> Patch:
    def put(self: Any, new: DeliveryState) -> DeliveryState:
        self._instance.stores.push.put_delivery(self._place[1], new)
        return new

    return patch.object(_Partition, "_put", put)


def _outage_counted() -> Patch:
    """A target that is away makes its records fail."""

    def failed(state: Any, config: Any, tried: Any, failed: Failed, now_ms: int) -> DeliveryState:
        return fail(state, config, tried, replace(failed, failure=Failure.REFUSAL), now_ms)

    return patch.object(deliver_ordered, "fail", failed)


def _passed_over_is_success(module: Any, name: str) -> Callable[[], Patch]:
    """Records that are passed over, or moved to the dead letters, show that the target works."""

    def patched() -> Patch:
        passed_over, step, now_ms = getattr(module, name), _Partition._step, [0]

        def stepped(self: Any, *arguments: Any) -> Any:
            now_ms[0] = self._instance.clock.now_ms()
            return step(self, *arguments)

        def succeeding(*arguments: Any) -> Any:
            return replace(passed_over(*arguments), proof_ms=now_ms[0])

        both = ExitStack()
        both.enter_context(patch.object(_Partition, "_step", stepped))
        both.enter_context(patch.object(module, name, succeeding))
        return both

    return patched


def _dead_letter_beside_its_transaction() -> Patch:
    return patch.object(bury_module, "move_with_state", apart)


def _dead_letter_without_a_reason() -> Patch:
    """A record that killed each delivery does not tell why it is dead."""
    return patch.object(bury_module, "BurialCause", SimpleNamespace(DELIVERIES=SimpleNamespace(value="")))


def _frozen_delivery_goes_on() -> Patch:
    return patch.object(LaneWork, "has_time", lambda _: True)


def _death_without_a_counted_attempt() -> Patch:
    """A delivery after a death does not write down its attempt."""
    return patch.object(deliver_ordered, "Facts", lambda **facts: Facts(**{**facts, "deaths": 0}))


def _deletion_is_a_beginning() -> Patch:
    """A delivery whose states were deleted begins with the log again."""
    return patch.object(deliver_ordered, "_is_gone", lambda _: False)


def _hint_dropped() -> Patch:
    """A delivery goes by the partitions that it remembers."""

    def partitions(self: Any, subscription: Any) -> Any:
        lanes = subscription.config.concurrency
        found = partitions_of(self._instance, subscription)
        return [each for each in found if lane_of(each[1].partition_key, lanes) == self._key.lane]

    return patch.object(_Delivery, "_partitions", partitions)


def _accepted_before_the_answer() -> Patch:
    original = _Lane._invoke

    def invoke(self: Any, chosen: Sequence[Any], held: HeldRecords) -> None:
        held.accept(chosen)
        held.acknowledge()
        original(self, chosen, held)

    return patch.object(_Lane, "_invoke", invoke)


def _parallel_failure(change: Callable[[Any, Failed], Any]) -> Patch:
    def failed(state: Any, config: Any, failed: Failed, *rest: Any) -> Any:
        return change(fail_parallel(state, config, failed, *rest), failed)

    return patch.object(deliver_parallel, "fail_parallel", failed)


def _buried_without_proof() -> Patch:
    return _parallel_failure(lambda done, _: replace(done, fate=Fate.BURY if done.fate is Fate.SPARE else done.fate))


def _lane_proves_what_was_before() -> Patch:
    """A success of the lane is a proof, though the record may have failed first after it, in another lane."""

    def failed(state: Any, config: Any, failed: Failed, *rest: Any) -> Any:
        done = fail_parallel(state, config, failed, *rest)
        is_proof = done.fate is Fate.SPARE and state.trouble is not None and state.trouble.is_well
        return replace(done, fate=Fate.BURY) if is_proof else done

    return patch.object(deliver_parallel, "fail_parallel", failed)


def _outage_counted_in_parallel() -> Patch:
    return _parallel_failure(lambda done, _: replace(done, fate=Fate.RETRY))


def _named_records_accepted() -> Patch:
    """Those that the target names are done, as the others are."""
    return patch.object(_Lane, "_count", lambda _, failing, _reason, held: held.accept(failing))


def _look_forgets_a_held_lane() -> Patch:
    original = overdue.needs_message

    def needed(lane: LaneState | None, due_ms: int, now_ms: int) -> bool:
        return (lane is None or lane.locked_until_ms == FREE) and original(lane, due_ms, now_ms)

    return patch.object(look_module, "needs_message", needed)


def _look_trusts_each_sleeper() -> Patch:
    original = overdue.needs_message

    def needed(lane: LaneState | None, due_ms: int, now_ms: int) -> bool:
        return not (lane is not None and lane.sleeper) and original(lane, due_ms, now_ms)

    return patch.object(look_module, "needs_message", needed)


def _look_sends_beside_a_message() -> Patch:
    return patch.object(look_module, "needs_message", lambda *_: True)


PUSH_FAILURE_MUTANTS = [
    Mutant("push: frozen delivery goes on after its lock", "pushing", _frozen_delivery_goes_on),
    Mutant("push: dead letter without a reason", "pushing", _dead_letter_without_a_reason),
    Mutant("push: parallel, buried without proof", "pushing", _buried_without_proof),
    Mutant("push: outage counted as the record's fault", "pushing", _outage_counted),
    Mutant("push: skip is a success", "pushing", _passed_over_is_success(deliver_ordered, "skip")),
    Mutant("push: dead letter is a success", "pushing", _passed_over_is_success(bury_module, "move")),
    Mutant("push: death without a counted attempt", "pushing", _death_without_a_counted_attempt),
    Mutant("push: parallel, accepted before the answer", "pushing", _accepted_before_the_answer),
    Mutant("push: parallel, outage counted", "pushing", _outage_counted_in_parallel),
    Mutant("push: parallel, named records accepted", "pushing", _named_records_accepted),
    Mutant("push: look forgets a held lane", "pushing", _look_forgets_a_held_lane),
    Mutant("push: look trusts each sleeper", "pushing", _look_trusts_each_sleeper),
    Mutant("push: look sends beside a message", "pushing", _look_sends_beside_a_message),
]

# No seed is known yet that shows these with the workload as it is. Move one up when it is found.
CANDIDATES = [
    Mutant("push: refused commit taken for done", "pushing", _refused_commit_taken_for_done),
    Mutant("push: dead letter beside its transaction", "pushing", _dead_letter_beside_its_transaction),
    Mutant("push: deletion is a beginning", "pushing", _deletion_is_a_beginning),
    Mutant("push: hint of a partition dropped", "pushing", _hint_dropped),
    Mutant("push: parallel, a proof from before the first failure", "pushing", _lane_proves_what_was_before),
]
