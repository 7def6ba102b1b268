"""The system's clock, chance and threads: the only place that imports them."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
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
    """Parallel calls on a pool of threads that is kept between requests.

    A function instance that is frozen after its answer keeps its unfinished calls; they go on when it is thawed. The
    pool is wide enough that calls to a zone that hangs until its timeout do not hold up the next requests.
    """

    def __init__(self, workers: int = 32) -> None:
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="penstock")

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
        for index, item in enumerate(items):
            future = self._pool.submit(_outcome, function, item)
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
        return results

    def close(self) -> None:
        """Waits for what runs, then ends the threads."""
        self._pool.shutdown()


def _report(done: "SimpleQueue[tuple[int, Future[T]]]", index: int, finished: "Future[T]") -> None:
    done.put((index, finished))


def _outcome(function: Callable[[A], T], item: A) -> T | PenstockError:
    try:
        return function(item)
    except PenstockError as error:
        return error
