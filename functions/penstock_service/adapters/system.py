"""The system's clock, random bytes and threads. No other module of the service imports them."""

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Condition, Lock
from typing import TypeVar

from penstock_core.errors import PenstockError
from penstock_core.limits import INSTANCE_LANE_THREADS_MAX, INSTANCE_THREADS_MAX
from penstock_core.outcomes import Outcomes, outcome_of

A = TypeVar("A")
T = TypeVar("T")


class SystemClock:
    """Clock: the time of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.perf_counter() * 1_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1_000)


class MovableClock(SystemClock):
    """Clock: this machine's time, plus what a test has added. `start_ms` is what it shows first, by default now.

    It runs in real time between two advances, and never goes back: leases and locks rest on that. The holder of `moved`
    may wait for the next advance.
    """

    def __init__(self, start_ms: int | None = None) -> None:
        self.moved = Condition()
        self._ahead_ms = 0 if start_ms is None else start_ms - super().now_ms()
        self._advanced_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms + self._advanced_ms

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self._advanced_ms

    def sleep_ms(self, duration_ms: float) -> None:
        end_ms = self.monotonic_ms() + duration_ms
        with self.moved:
            while (left_ms := end_ms - self.monotonic_ms()) > 0:
                self.moved.wait(left_ms / 1_000)

    def advance(self, duration_ms: int) -> None:
        """Let so much time pass. Sleeps go on until `wake`."""
        with self.moved:
            self._advanced_ms += duration_ms

    def wake(self) -> None:
        """End the sleeps that are over by now."""
        with self.moved:
            self.moved.notify_all()


class SystemEntropy:
    """Entropy: the random bytes of the system."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


_is_on_a_thread: ContextVar[bool] = ContextVar("is_on_a_thread", default=False)


class ThreadExecutor:
    """Executor on threads that stay between requests: `INSTANCE_THREADS_MAX` and `INSTANCE_LANE_THREADS_MAX` per lane.

    A function instance that is frozen after its answer keeps its unfinished calls, and they go on when it is thawed.
    Each call runs in the context (contextvars) of the request that asked for it, so it counts for no later one.

    A call on such a thread may call `map` itself, which calls one item after the other then. With threads of the same
    pool, as many calls as there are threads would wait for calls that find none.

    Each lane of `first_of` has its own threads. So a zone that hangs until its timeout delays no other zone, however
    many requests come meanwhile. When a result is decided, calls that have not begun are dropped.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=INSTANCE_THREADS_MAX, thread_name_prefix="penstock")
        self._lanes: dict[str, ThreadPoolExecutor] = {}  # one for each zone, and for each index without a name
        self._growing = Lock()

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> Outcomes[T]:
        if len(items) <= 1 or _is_on_a_thread.get():
            return Outcomes.collect(function, items)
        futures = [self._pool.submit(_context().run, outcome_of, function, item) for item in items]
        return Outcomes([future.result() for future in futures])

    def first_of(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        lanes: Sequence[str] = (),
        hedge_delays_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        done: SimpleQueue[tuple[int, Future[T | PenstockError]]] = SimpleQueue()
        pools = self._pools(lanes or [str(index) for index in range(len(items))])
        futures: list[Future[T | PenstockError]] = []

        def begin(index: int) -> None:
            futures.append(pools[index].submit(_context().run, outcome_of, function, items[index]))
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
                next_at = now + hedge_delays_ms[len(futures) - 1] / 1_000 if hedge_delays_ms else now
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
        """Waits for the calls that run, then ends the threads."""
        for pool in (self._pool, *self._lanes.values()):
            pool.shutdown()

    def _pools(self, lanes: Sequence[str]) -> list[ThreadPoolExecutor]:
        with self._growing:
            for lane in lanes:
                if lane not in self._lanes:
                    self._lanes[lane] = ThreadPoolExecutor(INSTANCE_LANE_THREADS_MAX, f"penstock-{lane}")
            return [self._lanes[lane] for lane in lanes]


class SequentialExecutor:
    """Executor that calls in the caller's thread, one item after the other, for storage that answers at once.

    Any number of requests may share it: no request waits for the threads of another.
    """

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> Outcomes[T]:
        return Outcomes.collect(function, items)

    def first_of(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,  # noqa: ARG002 - no call goes on when this one returns
        *,
        timeout_ms: float | None = None,  # noqa: ARG002 - no call takes long
        lanes: Sequence[str] = (),  # noqa: ARG002 - no call hangs
        hedge_delays_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        results: list[T | PenstockError | None] = [None] * len(items)
        for index, item in enumerate(items):
            if hedge_delays_ms and is_enough(results):
                break
            results[index] = outcome_of(function, item)
        return results


def _context() -> Context:
    """The context of this request, for a call on another thread."""
    context = copy_context()
    context.run(_is_on_a_thread.set, True)
    return context


def _report(done: "SimpleQueue[tuple[int, Future[T]]]", index: int, finished: "Future[T]") -> None:
    done.put((index, finished))
