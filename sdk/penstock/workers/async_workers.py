"""Tasks that take turns, as workers.py has it for threads, and what they wait on.

The classes have the faces of those in workers.py, so that the threaded clients are generated from the asynchronous ones
(tools/unasync.py).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Generic, TypeVar

from penstock.system import monotonic_ms
from penstock.workers.workers import seconds_until

Job = TypeVar("Job")


class AsyncLock:
    """What guards the state of a client in one event loop: nothing, for no other task runs between two awaits."""

    def __enter__(self) -> None:
        """Begin a block that must not be interrupted."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the block."""


def async_released(lock: AsyncLock) -> AsyncLock:
    """A block in which others may have the lock, as they always may."""
    return lock


def has_loop() -> bool:
    """True in an event loop: tasks can be made."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class AsyncSignal:
    """A condition of an event loop. A task that looks and then waits misses nothing: no other task runs in between."""

    def __init__(self, *, is_final: bool = False) -> None:
        """With `is_final`, an interruption ends all later waits too: several tasks may have been about to wait."""
        self._is_final = is_final
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None  # known from the first wait on
        self._is_interrupted = False

    def notify_all(self) -> None:
        """Wake every task that waits now."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def interrupt(self) -> None:
        """Wake the tasks that wait, or that were about to wait. Signal handlers and other threads may call it."""
        self._is_interrupted = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: no task waits
                self._loop.call_soon_threadsafe(self.notify_all)

    async def wait(self, until_ms: int) -> None:
        """Wait for a notification, or until a time of the monotonic clock."""
        self._loop = asyncio.get_running_loop()
        future = self._loop.create_future()
        self._waiting.add(future)
        try:
            # An interruption after the caller's last look must end this wait: the loop may have been unknown to it.
            if self._is_interrupted:
                future.set_result(None)
            await asyncio.wait((future,), timeout=seconds_until(until_ms, monotonic_ms()))
        finally:
            self._waiting.discard(future)
            self._is_interrupted &= self._is_final


class AsyncSleep:
    """The sleep of the task whose turn it is.

    `ends_at_ms` is a time of the monotonic clock, or -1 while no task sleeps.
    """

    def __init__(self) -> None:
        self._signal = AsyncSignal()
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

    def interrupt(self) -> None:
        """End the sleep, or the one that is about to begin. Any thread may call it."""
        self._signal.interrupt()


class AsyncErrand:
    """One piece of work that runs next to the calls of a client, in a task. The client may wait for it, or not."""

    def __init__(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, unless it runs already. The work must not raise."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._name)

    async def wait(self, timeout_s: float) -> None:
        """Wait until it has ended, or so long."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=timeout_s)

    async def end(self) -> None:
        """End it where it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        await self._work()


class AsyncWorkers(Generic[Job]):
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
        """Wait until the tasks end. `next_job` must answer None by now. A cancellation cancels the tasks, too."""
        if self._tasks:
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError:
                self.cancel()
                raise

    async def end(self) -> None:
        """End the tasks where they are."""
        self.cancel()
        await self.join()

    def cancel(self) -> None:
        """Begin to end the tasks where they are."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        while True:
            async with self._turn:
                job = await self._next_job()
            if job is None:
                return
            await self._carry(job)
