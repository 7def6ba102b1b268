"""Defects of timers: records that come twice, early or never, and segments that are swept while they wait."""

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from penstock_core.ids import PartitionKey
from penstock_core.log.timer import Timer, TimerPlace, cancelled, delivered, delivered_ref
from penstock_service.adapters.memory.timers import MemoryTimerStore
from penstock_service.retention import mark_live
from penstock_service.timers import promote_due as promote_due_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _delivered_twice() -> Patch:
    """The transaction appends, and does not ask whether the timers wait."""

    def promote(self: MemoryTimerStore, key: PartitionKey, timers: Sequence[Timer], now_ms: int) -> bool:
        with self._lock, self._log.held():
            for timer in timers:
                self._log.append_held(key, delivered_ref(timer, now_ms))
            return bool(_original_promote(self, key, [], now_ms)) and _settle_all(self, key, timers)

    return patch.object(MemoryTimerStore, "promote", promote)


def _settle_all(store: MemoryTimerStore, key: PartitionKey, timers: Sequence[Timer]) -> bool:
    for timer in timers:
        if timer.place in store._places.get(key, []):
            store._places[key].remove(timer.place)
    return True


_original_promote = MemoryTimerStore.promote


def _early() -> Patch:
    original = MemoryTimerStore.waiting

    def waiting(
        self: MemoryTimerStore, key: PartitionKey, start_ms: int, end_ms: int, limit: int, *after: TimerPlace | None
    ) -> Sequence[Timer]:
        return original(self, key, start_ms, end_ms + 2_000, limit, *after)

    return patch.object(MemoryTimerStore, "waiting", waiting)


def _lost_after_a_lost_answer() -> Patch:
    """The marks are a write of their own. If the answer to the append is lost, the timers have left all the same."""

    def promote(self: MemoryTimerStore, key: PartitionKey, timers: Sequence[Timer], now_ms: int) -> bool:
        is_done = _original_promote(self, key, timers[:-1] or timers, now_ms)
        if is_done and len(timers) > 1:
            self._settle(delivered(timers[-1], now_ms))
        return is_done

    return patch.object(MemoryTimerStore, "promote", promote)


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
    Mutant("cancelled and delivered", "timers", _cancelled_and_delivered),
    Mutant("timer put anew", "timers", _timer_put_anew),
    Mutant("minute forgotten at once", "timers", _minute_forgotten_at_once),
    Mutant("swept while waiting", "timers,sweep", _swept_while_waiting),
]
