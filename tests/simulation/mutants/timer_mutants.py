"""Defects of timers: records that come twice, early or never, and segments that are swept while they wait."""

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from penstock_core.ids import PartitionKey
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.timer import PlaceRange, Timer, TimerPlace, cancelled, delivered
from penstock_core.storage.timer_item import settling
from penstock_service.adapters.dynamodb.timers import DynamoDbTimerStore
from penstock_service.retention import mark_live
from penstock_service.timers import promote_due as promote_due_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _early() -> Patch:
    original = DynamoDbTimerStore.waiting

    def waiting(
        self: DynamoDbTimerStore, key: PartitionKey, shard: int, places: PlaceRange, limit: int
    ) -> Sequence[Timer]:
        return original(self, key, shard, places._replace(end_ms=places.end_ms + 2_000), limit)

    return patch.object(DynamoDbTimerStore, "waiting", waiting)


def _lost_after_a_lost_answer() -> Patch:
    """The marks are a write of their own. If the answer to the append is lost, the timers have left all the same."""
    original = DynamoDbTimerStore.promote

    def promote(self: DynamoDbTimerStore, delivery: Delivery) -> DeliveryOutcome:
        timers = delivery.timers
        fewer = Delivery(key=delivery.key, timers=timers[:-1] or timers, now_ms=delivery.now_ms)
        outcome = original(self, fewer)
        if outcome is DeliveryOutcome.DONE and len(timers) > 1:
            self._client.update_if(self._table, settling(delivered(timers[-1], delivery.now_ms)))
        return outcome

    return patch.object(DynamoDbTimerStore, "promote", promote)


def _cancelled_and_delivered() -> Patch:
    def cancel(self: DynamoDbTimerStore, key: PartitionKey, place: TimerPlace, now_ms: int) -> Timer | None:
        stored = self.get(key, place)
        return cancelled(stored, now_ms) if stored is not None and stored.is_waiting else stored

    return patch.object(DynamoDbTimerStore, "cancel", cancel)


def _swept_while_waiting() -> Patch:
    return patch.object(mark_live, "_mark_timers", lambda *_: None)


def _timer_put_anew() -> Patch:
    """A repeated put takes the place of the mark that the first one has left."""
    original: Callable[..., Any] = DynamoDbTimerStore.put

    def put(self: DynamoDbTimerStore, timer: Timer) -> Timer:
        stored = self.get(timer.key, timer.place)
        if stored is not None and not stored.is_waiting:
            self.delete(timer.key, timer.place)
        return original(self, timer)  # type: ignore[no-any-return]

    return patch.object(DynamoDbTimerStore, "put", put)


def _minute_forgotten_at_once() -> Patch:
    def is_over(*_: Any) -> bool:
        return True

    return patch.multiple(promote_due_module, is_minute_over=is_over, _is_empty=is_over)


TIMER_MUTANTS = [
    Mutant("delivered early", "timers", _early),
    Mutant("lost between mark and append", "timers", _lost_after_a_lost_answer),
    Mutant("cancelled and delivered", "timers", _cancelled_and_delivered),
    Mutant("timer put anew", "timers", _timer_put_anew),
    Mutant("minute forgotten at once", "timers", _minute_forgotten_at_once),
    Mutant("swept while waiting", "timers,sweep", _swept_while_waiting),
]
