"""Threads that take turns: one finds the next job and waits for it if need be, the others carry theirs out."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from penstock.retry import NEVER_MS

Job = TypeVar("Job")


class WorkerThreads(Generic[Job]):
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

    def join(self) -> None:
        """Wait for the threads to end: `next_job` must answer None by now."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while True:
            with self._turn:
                job = self._next_job()
            if job is None:
                return
            self._carry(job)


def seconds_until(at_ms: int, now_ms: int) -> float | None:
    """For a condition's wait: None, for ever, from `NEVER_MS` on."""
    return None if at_ms >= NEVER_MS else max(0, at_ms - now_ms) / 1_000


@contextmanager
def released(lock: threading.Lock) -> Iterator[None]:
    """Without the lock that is held."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
