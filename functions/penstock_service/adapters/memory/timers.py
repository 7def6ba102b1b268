"""TimerStore in memory, over the log of the same service. A promotion holds the log."""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from penstock_core.ids import PartitionKey, TimerId
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.timer import DueMinute, DueSecond, PlaceRange, Timer, TimerPlace, cancelled, delivered
from penstock_core.storage.delivery_writes import head_write
from penstock_core.storage.dynamodb_limits import check_actions, check_update
from penstock_service.adapters.memory.contention import Contention, held_items
from penstock_service.adapters.memory.log import MemoryLogIndex


class MemoryTimerStore:
    """TimerStore: the port documents its methods. Marks stay for ever."""

    def __init__(self, log: MemoryLogIndex, contention: Contention | None = None) -> None:
        self._log = log
        self._contention = contention
        self._lock = threading.RLock()
        self._timers: dict[PartitionKey, dict[TimerPlace, Timer]] = {}
        self._places: dict[tuple[PartitionKey, int], list[TimerPlace]] = {}  # by shard: of timers that wait, in order
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
                insort(self._places.setdefault((timer.key, timer.place.shard), []), timer.place)
            return timers[timer.place]

    def get(self, key: PartitionKey, place: TimerPlace) -> Timer | None:
        with self._lock:
            return self._timers.get(key, {}).get(place)

    def waiting(self, key: PartitionKey, shard: int, places: PlaceRange, limit: int) -> Sequence[Timer]:
        with self._lock:
            there, timers = self._places.get((key, shard), []), self._timers.get(key, {})
            start = bisect_left(there, TimerPlace(places.start_ms, TimerId(b"")))
            if places.after is not None:
                start = max(start, bisect_right(there, places.after))
            end = bisect_left(there, TimerPlace(places.end_ms, TimerId(b"")))
            return [timers[place] for place in there[start : min(end, start + limit)]]

    def promote(self, delivery: Delivery) -> DeliveryOutcome:
        check_actions(delivery.actions)
        check_update(head_write(delivery))
        key = delivery.key
        with held_items(self._contention, [key]), self._lock, self._log.held():
            stored = [self._timers.get(key, {}).get(timer.place) for timer in delivery.timers]
            if not all(each is not None and each.is_waiting for each in stored):
                return DeliveryOutcome.SETTLED
            if not self._log.deliver_held(delivery):
                return DeliveryOutcome.MOVED
            for timer in delivery.timers:
                self._settle(delivered(timer, delivery.now_ms))
            return DeliveryOutcome.DONE

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
                self._places[key, place.shard].remove(place)

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
        self._places[mark.key, mark.place.shard].remove(mark.place)
        return mark


class MemoryTimerTriggers:
    """TimerTriggers: the port documents its methods.

    `seconds` are the seconds that were announced and not taken, each with its delay in milliseconds.
    """

    def __init__(self) -> None:
        self.seconds: list[tuple[DueSecond, int]] = []
        self.is_switched_on = False
        self.is_open = False
        self.runs_at_once = 0

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        self.seconds.append((second, delay_ms))

    def switch_on(self) -> None:
        self.is_switched_on = True

    def run_at_once(self) -> None:
        self.runs_at_once += 1

    def open_queue(self) -> None:
        self.is_open = True
