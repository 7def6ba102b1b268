"""Defects of timers: records that come twice, early or never, and segments that are swept while they wait."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.ids import PartitionKey
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.timer import PlaceRange, Timer, TimerPlace, cancelled, delivered
from penstock_service.adapters.memory.log import MemoryLogIndex
from penstock_service.adapters.memory.timers import MemoryTimerStore
from penstock_service.retention import mark_live
from penstock_service.timers import promote_due as promote_due_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _delivered_twice() -> Patch:
    """The transaction appends, and does not ask whether the timers wait."""

    def promote(self: MemoryTimerStore, delivery: Delivery) -> DeliveryOutcome:
        with self._lock, self._log.held():
            if not self._log.deliver_held(delivery):
                return DeliveryOutcome.MOVED
            for timer in delivery.timers:
                there = self._places.get((timer.key, timer.place.shard), [])
                if timer.place in there:
                    there.remove(timer.place)
            return DeliveryOutcome.DONE

    return patch.object(MemoryTimerStore, "promote", promote)


def _early() -> Patch:
    original = MemoryTimerStore.waiting

    def waiting(
        self: MemoryTimerStore, key: PartitionKey, shard: int, places: PlaceRange, limit: int
    ) -> Sequence[Timer]:
        return original(self, key, shard, places._replace(end_ms=places.end_ms + 2_000), limit)

    return patch.object(MemoryTimerStore, "waiting", waiting)


def _lost_after_a_lost_answer() -> Patch:
    """The marks are a write of their own. If the answer to the append is lost, the timers have left all the same."""
    original = MemoryTimerStore.promote

    def promote(self: MemoryTimerStore, delivery: Delivery) -> DeliveryOutcome:
        timers = delivery.timers
        fewer = Delivery(key=delivery.key, timers=timers[:-1] or timers, now_ms=delivery.now_ms)
        outcome = original(self, fewer)
        if outcome is DeliveryOutcome.DONE and len(timers) > 1:
            self._settle(delivered(timers[-1], delivery.now_ms))
        return outcome

    return patch.object(MemoryTimerStore, "promote", promote)


def _rolled_as_seen() -> Patch:
    """The transaction rolls the tail that the promoter has seen, and does not ask whether it is still the same."""
    original = MemoryLogIndex.deliver_held

    def deliver_held(self: MemoryLogIndex, delivery: Delivery) -> bool:
        head, roll = self._heads.get(delivery.key), delivery.roll
        if head is None or roll is None:
            return original(self, delivery)
        pages = self._pages.setdefault(delivery.key, [])
        pages.extend(page for page in roll.pages if page not in pages)
        pages.sort(key=lambda page: page.end_offset)
        self._heads[delivery.key] = replace(roll.after, waiter_ms=head.waiter_ms)
        return True

    return patch.object(MemoryLogIndex, "deliver_held", deliver_held)


def _cancelled_and_delivered() -> Patch:
    def cancel(self: MemoryTimerStore, key: PartitionKey, place: TimerPlace, now_ms: int) -> Timer | None:
        stored = self.get(key, place)
        return cancelled(stored, now_ms) if stored is not None and stored.is_waiting else stored

    return patch.object(MemoryTimerStore, "cancel", cancel)


def _swept_while_waiting() -> Patch:
    return patch.object(mark_live, "_mark_timers", lambda *_: None)


def _timer_put_anew() -> Patch:
    """A repeated put takes the place of the mark that the first one has left."""
    original: Callable[..., Any] = MemoryTimerStore.put

    def put(self: MemoryTimerStore, timer: Timer) -> Timer:
        stored = self.get(timer.key, timer.place)
        if stored is not None and not stored.is_waiting:
            del self._timers[timer.key][timer.place]
        return original(self, timer)  # type: ignore[no-any-return]

    return patch.object(MemoryTimerStore, "put", put)


def _minute_forgotten_at_once() -> Patch:
    def is_over(*_: Any) -> bool:
        return True

    return patch.multiple(promote_due_module, is_minute_over=is_over, _is_empty=is_over)


TIMER_MUTANTS = [
    Mutant("delivered twice", "timers", _delivered_twice),
    Mutant("delivered early", "timers", _early),
    Mutant("lost between mark and append", "timers", _lost_after_a_lost_answer),
    Mutant("rolled as seen", "timers", _rolled_as_seen),
    Mutant("cancelled and delivered", "timers", _cancelled_and_delivered),
    Mutant("timer put anew", "timers", _timer_put_anew),
    Mutant("minute forgotten at once", "timers", _minute_forgotten_at_once),
    Mutant("swept while waiting", "timers,sweep", _swept_while_waiting),
]
