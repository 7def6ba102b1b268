"""The system's clock, chance and threads: the only place that imports them."""

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TypeVar

from penstock_core.errors import PenstockError

A = TypeVar("A")
T = TypeVar("T")


class SystemClock:
    """Clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.perf_counter() * 1_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1_000)


class SystemChance:
    """The system's random source."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


class Threads:
    """Parallel calls on threads that are kept between requests.

    A function instance that is frozen after its answer keeps its unfinished calls; they go on when it is thawed. Each
    place in a race has threads of its own, so that a zone that hangs until its timeout holds up no other, however many
    requests come meanwhile; its calls that have not begun when the race is over are dropped.
    """

    def __init__(self, workers: int = 32, workers_per_place: int = 32) -> None:
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="penstock")
        self._workers_per_place = workers_per_place
        self._places: dict[str, ThreadPoolExecutor] = {}
        self._growing = Lock()

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> list[T | PenstockError]:
        if len(items) <= 1:
            return [_outcome(function, item) for item in items]
        futures = [self._pool.submit(_outcome, function, item) for item in items]
        return [future.result() for future in futures]

    def race(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        places: Sequence[str] = (),
        patience_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        done: SimpleQueue[tuple[int, Future[T | PenstockError]]] = SimpleQueue()
        pools = self._pools(places or [str(index) for index in range(len(items))])
        futures: list[Future[T | PenstockError]] = []

        def begin(index: int) -> None:
            futures.append(pools[index].submit(_outcome, function, items[index]))
            futures[index].add_done_callback(partial(_report, done, index))

        results: list[T | PenstockError | None] = [None] * len(items)
        now = time.perf_counter()
        end = math.inf if timeout_ms is None else now + timeout_ms / 1_000
        next_at = now
        ended, is_decided = 0, False
        while ended < len(items):
            if not is_decided and is_enough(results):
                is_decided, end = True, min(end, now + grace_ms / 1_000)
            while not is_decided and len(futures) < len(items) and (now >= next_at or ended == len(futures)):
                begin(len(futures))
                next_at = now + patience_ms[len(futures) - 1] / 1_000 if patience_ms else now
            if is_decided and ended == len(futures):
                break
            wake_at = end if is_decided or len(futures) == len(items) else min(end, next_at)
            try:
                index, future = done.get(timeout=None if wake_at == math.inf else max(0.0, wake_at - now))
                results[index] = future.result()
                ended += 1
            except Empty:
                if time.perf_counter() >= end:
                    break
            now = time.perf_counter()
        for future in futures:
            future.cancel()
        return results

    def close(self) -> None:
        """Waits for what runs, then ends the threads."""
        for pool in (self._pool, *self._places.values()):
            pool.shutdown()

    def _pools(self, places: Sequence[str]) -> list[ThreadPoolExecutor]:
        with self._growing:
            for place in places:
                if place not in self._places:
                    self._places[place] = ThreadPoolExecutor(self._workers_per_place, f"penstock-{place}")
            return [self._places[place] for place in places]


def _report(done: "SimpleQueue[tuple[int, Future[T]]]", index: int, finished: "Future[T]") -> None:
    done.put((index, finished))


def _outcome(function: Callable[[A], T], item: A) -> T | PenstockError:
    try:
        return function(item)
    except PenstockError as error:
        return error
