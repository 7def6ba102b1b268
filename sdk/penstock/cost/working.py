"""The acquires of share workers with the SDK's settings, played against requests of producers.

As penstock.share.waiting has it: while a worker gets records, it asks for more as soon as it has handled them, and its
next acquire accepts them. Then it asks in its rhythm, arms, and sleeps. A wake-up reaches all workers that sleep, and
one of them gets the records. Handlers are assumed to take no time: slower ones acquire more records at once.
"""

import heapq
from dataclasses import astuple, dataclass
from functools import lru_cache

from penstock.cost.reading import Stream, arrivals, stream_of
from penstock.cost.workload import ANSWER_MS, Workload
from penstock.wake_ups.rhythm import Rhythm
from penstock_core.limits import SDK_WAKE_UP_FRUITLESS_MS, SDK_WAKE_UP_FRUITLESS_MS_MAX

_WORKERS_MAX = 64  # that are played: more of them are as many as these for their share of the stream
_RECORDS_MAX = 100  # of an acquire, by default
_ARRIVALS = 2_000
_CHANCE = 0.5


@dataclass(frozen=True, slots=True)
class Acquires:
    """The acquires of a share group's workers a second: those that find records, those that find none, those that arm.

    `segments` are the produce requests that are found, `armed` the heads that are written, `messages` the wake-ups.
    """

    found: float = 0.0
    segments: float = 0.0
    empty: float = 0.0
    arming: float = 0.0
    armed: float = 0.0
    messages: float = 0.0

    def times(self, factor: float) -> "Acquires":
        """So many times as much of all."""
        return Acquires(*(each * factor for each in astuple(self)))


def acquires_per_s(workload: Workload) -> Acquires:
    """The acquires of all share workers of one topic a second, while records come."""
    if not (workload.records_per_s and workload.share_workers):
        return Acquires()
    workers = max(1, round(workload.share_workers / workload.topics))
    played = min(workers, _WORKERS_MAX)
    stream = stream_of(workload).scaled(played / workers, workload.partitions)
    return _played(stream, played, int(workload.fetch_interval_ms)).times(workers / played)


@lru_cache
def _played(stream: Stream, workers: int, interval_ms: int) -> Acquires:
    group = _ShareGroup(stream, workers, interval_ms)
    end_ms = group.play()
    return group.acquires().times(1_000 / end_ms)


class _Worker:
    def __init__(self, interval_ms: int) -> None:
        self.rhythm = Rhythm(interval_ms)
        self.is_asleep = False
        self.is_woken = False
        self.again_ms = 0.0  # after wake-ups that were none for it
        self.fruitless = 0


class _ShareGroup:
    """The workers of one share group, and the requests whose records none of them has yet."""

    def __init__(self, stream: Stream, workers: int, interval_ms: int) -> None:
        self._partitions = stream.partitions
        self._per_acquire = max(1, int(_RECORDS_MAX / stream.records))
        self._coming = [at_ms for at_ms, _ in arrivals(stream, _ARRIVALS)]
        self._workers = [_Worker(interval_ms) for _ in range(workers)]
        self._waiting = 0
        self._found = self._segments = self._empty = self._arming = self._armed = self._messages = 0

    def acquires(self) -> Acquires:
        """The sums of all acquires."""
        done = (self._found, self._segments, self._empty, self._arming, self._armed, self._messages)
        return Acquires(*map(float, done))

    def play(self) -> float:
        """Acquires whenever a worker would. Returns the time of the last request in milliseconds."""
        due = [(float(number), number) for number in range(len(self._workers))]
        for at_ms in self._coming:
            while due and due[0][0] < at_ms:
                now_ms, number = heapq.heappop(due)
                again_ms = self._acquire(self._workers[number], now_ms)
                if again_ms is not None:
                    heapq.heappush(due, (again_ms, number))
            self._waiting += 1
            sleepers = [number for number, worker in enumerate(self._workers) if worker.is_asleep]
            self._messages += bool(sleepers)
            for number in sleepers:
                worker = self._workers[number]
                worker.is_asleep, worker.is_woken = False, True
                heapq.heappush(due, (max(at_ms, worker.again_ms), number))
        return self._coming[-1]

    def _acquire(self, worker: _Worker, now_ms: float) -> float | None:
        """One acquire. Returns the time of the worker's next one, None if it sleeps now."""
        rhythm, is_awake = worker.rhythm, worker.rhythm.is_awake(self._partitions)
        was_woken, worker.is_woken = worker.is_woken, False
        rhythm.asked(int(now_ms))
        answered_ms = now_ms + ANSWER_MS
        if self._waiting:
            got = min(self._waiting, self._per_acquire)
            self._waiting -= got
            self._found, self._segments = self._found + 1, self._segments + got
            worker.fruitless, worker.again_ms = 0, 0.0
            rhythm.answered(self._partitions, 1, now_ms=int(answered_ms), chance=_CHANCE)
            return answered_ms
        if was_woken:
            pause_ms = SDK_WAKE_UP_FRUITLESS_MS * 2 ** min(worker.fruitless, 30)
            worker.fruitless += 1
            worker.again_ms = answered_ms + min(pause_ms, SDK_WAKE_UP_FRUITLESS_MS_MAX)
        if not is_awake:
            self._arming += 1
            self._armed += not any(each.is_asleep for each in self._workers)
            worker.is_asleep = True
            return None
        self._empty += 1
        rhythm.answered(self._partitions, 0, now_ms=int(answered_ms), chance=_CHANCE)
        if rhythm.is_awake(self._partitions):
            return max(answered_ms, rhythm.next_ms)
        return max(answered_ms, rhythm.arms_ms(self._partitions))
