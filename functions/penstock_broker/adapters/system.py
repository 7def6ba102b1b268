"""The system's clock, chance and threads: the only place that imports them."""

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

    def __init__(self, workers: int = 32, workers_per_place: int = 8) -> None:
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="penstock")
        self._workers_per_place = workers_per_place
        self._places: list[ThreadPoolExecutor] = []
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
    ) -> list[T | PenstockError | None]:
        done: SimpleQueue[tuple[int, Future[T | PenstockError]]] = SimpleQueue()
        futures = [
            pool.submit(_outcome, function, item) for pool, item in zip(self._pools(len(items)), items, strict=True)
        ]
        for index, future in enumerate(futures):
            future.add_done_callback(partial(_report, done, index))
        results: list[T | PenstockError | None] = [None] * len(items)
        missing = len(items)
        deadline: float | None = None
        while missing:
            if deadline is None and is_enough(results):
                deadline = time.perf_counter() + grace_ms / 1_000
            try:
                wait = None if deadline is None else max(0.0, deadline - time.perf_counter())
                index, future = done.get(timeout=wait)
            except Empty:
                break
            results[index] = future.result()
            missing -= 1
        for future in futures:
            future.cancel()
        return results

    def close(self) -> None:
        """Waits for what runs, then ends the threads."""
        for pool in (self._pool, *self._places):
            pool.shutdown()

    def _pools(self, count: int) -> list[ThreadPoolExecutor]:
        with self._growing:
            while len(self._places) < count:
                self._places.append(ThreadPoolExecutor(self._workers_per_place, f"penstock-{len(self._places)}"))
            return self._places[:count]


def _report(done: "SimpleQueue[tuple[int, Future[T]]]", index: int, finished: "Future[T]") -> None:
    done.put((index, finished))


def _outcome(function: Callable[[A], T], item: A) -> T | PenstockError:
    try:
        return function(item)
    except PenstockError as error:
        return error
