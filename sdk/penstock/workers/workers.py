"""Threads that take turns: one finds the next job, and waits for it if need be; the others carry theirs out."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from penstock.retry import NEVER_MS
from penstock.system import ProcessLock, monotonic_ms

Job = TypeVar("Job")

Lock = threading.Lock


class Signal:
    """A condition of a lock whose waiters a signal handler may wake, although the program may hold the lock just then.

    `threading.Condition` wants the lock to notify. Here each waiter has a lock of its own, and its release is one step
    that nothing interrupts.
    """

    def __init__(self, lock: threading.Lock, *, is_final: bool = False) -> None:
        """With `is_final`, an interruption ends all later waits too: several threads may have been about to wait."""
        self._lock = lock
        self._is_final = is_final
        self._waiting: list[threading.Lock] = []
        self._is_interrupted = False

    def notify_all(self) -> None:
        """Wake every thread that waits now."""
        for waiter in list(self._waiting):
            with suppress(RuntimeError):  # it is awake already
                waiter.release()

    def interrupt(self) -> None:
        """Wake the thread that waits, or that was about to wait. Needs no lock."""
        self._is_interrupted = True
        self.notify_all()

    def wait(self, until_ms: int) -> None:
        """Under the lock, which is free meanwhile: wait for a notification, or until a time of the monotonic clock."""
        timeout = seconds_until(until_ms, monotonic_ms())
        waiter = threading.Lock()
        waiter.acquire()
        self._waiting.append(waiter)
        try:
            with released(self._lock):
                # An interruption after the caller's last look must end this wait: it came before the waiter was there.
                if not self._is_interrupted:
                    waiter.acquire(timeout=-1 if timeout is None else timeout)
                if not self._is_final:
                    self._is_interrupted = False
        finally:
            self._waiting.remove(waiter)


class Sleep:
    """The sleep of the thread whose turn it is, under a lock that it releases meanwhile.

    `ends_at_ms` is a time of the monotonic clock, or -1 while no thread sleeps. Call `end` under the lock, too.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._signal = Signal(lock)
        self.ends_at_ms = -1

    def until(self, until_ms: int) -> None:
        """Sleep until this time, or until a call of `end`."""
        self.ends_at_ms = until_ms
        self._signal.wait(until_ms)
        self.ends_at_ms = -1

    def end(self) -> None:
        """End the sleep now."""
        self.ends_at_ms = -1
        self._signal.notify_all()

    def interrupt(self) -> None:
        """End the sleep, or the one that is about to begin. Needs no lock: any thread may call it."""
        self._signal.interrupt()


class Errand:
    """One piece of work that runs next to the calls of a client, in a thread. The client may wait for it, or not."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._lock = ProcessLock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin, unless it runs already. The work must not raise. An interpreter that exits does not wait for it."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended, or so long."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def end(self) -> None:
        """Leave it alone: nothing waits for it."""


class Workers(Generic[Job]):
    """`next_job` is called by one thread at a time and may block; None ends the threads. `carry` must not raise."""

    def __init__(self, name: str, count: int, next_job: Callable[[], Job | None], carry: Callable[[Job], None]) -> None:
        self._name = name
        self._count = count
        self._next_job = next_job
        self._carry = carry
        self._turn = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, once. They are daemons: an interpreter that exits does not wait for them."""
        if self._threads:
            return
        self._threads = [
            threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
            for number in range(self._count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def has_this_thread(self) -> bool:
        """True if the caller runs in one of the threads."""
        return threading.current_thread() in self._threads

    def join(self) -> None:
        """Wait until the threads end. `next_job` must answer None by now."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def end(self) -> None:
        """As `join`: a thread always finishes what it carries out."""
        self.join()

    def _run(self) -> None:
        while True:
            with self._turn:
                job = self._next_job()
            if job is None:
                return
            self._carry(job)


def seconds_until(at_ms: int, now_ms: int) -> float | None:
    """For a condition's wait: the seconds until a time; None, for ever, from `NEVER_MS` on."""
    return None if at_ms >= NEVER_MS else max(0, at_ms - now_ms) / 1_000


def join_until(threads: Iterable[threading.Thread], until_ms: int) -> None:
    """Wait until the threads end, or until a time of the monotonic clock."""
    for thread in threads:
        if thread.ident is not None:  # it was started
            thread.join(seconds_until(until_ms, monotonic_ms()))


@contextmanager
def released(lock: threading.Lock) -> Iterator[None]:
    """Release the lock that is held for the length of the block."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
