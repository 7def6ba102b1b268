"""TimerStore in memory, over the log of the same service. A promotion holds the log."""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from penstock_core.ids import PartitionKey, TimerId
from penstock_core.log.index import unknown_partition
from penstock_core.log.timer import DueMinute, DueSecond, Timer, TimerPlace, cancelled, delivered, delivered_ref
from penstock_core.storage.dynamodb_limits import check_actions
from penstock_service.adapters.memory.contention import Contention, held_items
from penstock_service.adapters.memory.log import MemoryLogIndex


class MemoryTimerStore:
    """TimerStore: the port documents its methods. Marks stay for ever."""

    def __init__(self, log: MemoryLogIndex, contention: Contention | None = None) -> None:
        self._log = log
        self._contention = contention
        self._lock = threading.RLock()
        self._timers: dict[PartitionKey, dict[TimerPlace, Timer]] = {}
        self._places: dict[PartitionKey, list[TimerPlace]] = {}  # of the timers that wait, in order
        self._minutes: dict[DueMinute, int] = {}
        self._switched_on_ms: int | None = None

    def reserve(self, minute: DueMinute, count: int) -> int:
        with self._lock:
            self._minutes[minute] = self._minutes.get(minute, 0) + count
            return self._minutes[minute]

    def put(self, timer: Timer) -> Timer:
        with self._lock:
            timers = self._timers.setdefault(timer.key, {})
            if timer.place not in timers:
                timers[timer.place] = timer
                insort(self._places.setdefault(timer.key, []), timer.place)
            return timers[timer.place]

    def get(self, key: PartitionKey, place: TimerPlace) -> Timer | None:
        with self._lock:
            return self._timers.get(key, {}).get(place)

    def waiting(
        self, key: PartitionKey, start_ms: int, end_ms: int, limit: int, after: TimerPlace | None = None
    ) -> Sequence[Timer]:
        with self._lock:
            places, timers = self._places.get(key, []), self._timers.get(key, {})
            start = bisect_left(places, TimerPlace(start_ms, TimerId(b"")))
            if after is not None:
                start = max(start, bisect_right(places, after))
            end = bisect_left(places, TimerPlace(end_ms, TimerId(b"")))
            return [timers[place] for place in places[start : min(end, start + limit)]]

    def promote(self, key: PartitionKey, timers: Sequence[Timer], now_ms: int) -> bool:
        check_actions(1 + len(timers))
        with held_items(self._contention, [key]), self._lock, self._log.held():
            stored = [self._timers.get(key, {}).get(timer.place) for timer in timers]
            if key not in self._log.heads([key]):
                raise unknown_partition(key)
            if not all(each is not None and each.is_waiting for each in stored):
                return False
            for timer in timers:
                self._log.append_held(key, delivered_ref(timer, now_ms))
                self._settle(delivered(timer, now_ms))
            return True

    def cancel(self, key: PartitionKey, place: TimerPlace, now_ms: int) -> Timer | None:
        with self._lock:
            stored = self.get(key, place)
            if stored is None or not stored.is_waiting:
                return stored
            return self._settle(cancelled(stored, now_ms))

    def delete(self, key: PartitionKey, place: TimerPlace) -> None:
        with self._lock:
            removed = self._timers.get(key, {}).pop(place, None)
            if removed is not None and removed.is_waiting:
                self._places[key].remove(place)

    def due_minutes(self, end_minute: int) -> Sequence[DueMinute]:
        with self._lock:
            return sorted(each for each in self._minutes if each.minute < end_minute)

    def forget_minute(self, minute: DueMinute) -> None:
        with self._lock:
            self._minutes.pop(minute, None)

    def switched_on_ms(self) -> int | None:
        return self._switched_on_ms

    def note_switched_on(self, now_ms: int) -> None:
        self._switched_on_ms = now_ms

    def _settle(self, mark: Timer) -> Timer:
        self._timers[mark.key][mark.place] = mark
        self._places[mark.key].remove(mark.place)
        return mark


class MemoryTimerTriggers:
    """TimerTriggers: the port documents its methods.

    `seconds` are the seconds that were announced and not taken, each with its delay in milliseconds.
    """

    def __init__(self) -> None:
        self.seconds: list[tuple[DueSecond, int]] = []
        self.is_switched_on = False
        self.is_open = False

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        self.seconds.append((second, delay_ms))

    def switch_on(self) -> None:
        self.is_switched_on = True

    def open_queue(self) -> None:
        self.is_open = True
