"""Tasks that take turns, as worker_threads.py has it for threads, and what they wait on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from penstock.system import monotonic_ms
from penstock.workers.worker_threads import seconds_until

Job = TypeVar("Job")


class Signal:
    """A condition of an event loop. A task that looks and then waits misses nothing: no other task runs in between."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify_all(self) -> None:
        """Wake every task that waits now."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, until_ms: int) -> None:
        """Wait for a notification, or until a time of the monotonic clock."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait((future,), timeout=seconds_until(until_ms, monotonic_ms()))
        finally:
            self._waiting.discard(future)


class Sleep:
    """The sleep of the task whose turn it is.

    `ends_at_ms` is a time of the monotonic clock, or -1 while no task sleeps.
    """

    def __init__(self) -> None:
        self._signal = Signal()
        self.ends_at_ms = -1

    async def until(self, until_ms: int) -> None:
        """Sleep until this time, or until a call of `end`."""
        self.ends_at_ms = until_ms
        await self._signal.wait(until_ms)
        self.ends_at_ms = -1

    def end(self) -> None:
        """End the sleep now."""
        self.ends_at_ms = -1
        self._signal.notify_all()


class WorkerTasks(Generic[Job]):
    """`next_job` is awaited by one task at a time; None ends the tasks. `carry` must not raise."""

    def __init__(
        self,
        name: str,
        count: int,
        next_job: Callable[[], Awaitable[Job | None]],
        carry: Callable[[Job], Awaitable[None]],
    ) -> None:
        self._name = name
        self._count = count
        self._next_job = next_job
        self._carry = carry
        self._turn = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks, once, in the running loop."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._run(), name=f"{self._name}-{number}") for number in range(self._count)
            ]

    async def join(self) -> None:
        """Wait until the tasks end. `next_job` must answer None by now, or you must have called `cancel`."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """End the tasks where they are."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        while True:
            async with self._turn:
                job = await self._next_job()
            if job is None:
                return
            await self._carry(job)
