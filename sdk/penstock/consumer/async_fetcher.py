"""The tasks of a consumer: fetcher.py for an event loop, which needs no lock."""

import asyncio
import inspect
from contextlib import suppress

from penstock.consumer.consumer_core import ConsumerCore
from penstock.consumer.fetch_buffer import FetchRequest
from penstock.consumer.fetch_call import fetch
from penstock.consumer.listener import ConsumerSteps, Notice
from penstock.group.async_heartbeater import AsyncHeartbeater
from penstock.http.async_client import AsyncClient
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Wait, drive_async
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.wake_task import WakeTask
from penstock.workers.fork_guard import ForkGuard
from penstock.workers.worker_tasks import Signal, Sleep, WorkerTasks


class AsyncFetcher:
    """Drives a consumer's core and its buffer; call `wake` after a change."""

    def __init__(self, core: ConsumerCore, client: AsyncClient, *, max_in_flight: int, fork: ForkGuard) -> None:
        self._core = core
        self._buffer = core.buffer
        self._fork = fork
        self._client = client
        self._arrived = Signal()
        self._sleep = Sleep()
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None  # known from the first start on
        self._tasks = WorkerTasks("penstock-fetcher", max_in_flight, self._next_request, self._carry)
        self._wake_ups: WakeTask | None = None
        if core.buffer.waiting.watch is not None:
            self._wake_ups = WakeTask(core.buffer.waiting.watch, client, core.buffer.woken, changed=self._look_again)
        self._heartbeater: AsyncHeartbeater | None = None
        if core.membership is not None:
            self._heartbeater = AsyncHeartbeater(
                core.membership, core.group_id, client, changed=self._arrived, after_heartbeat=self._after_heartbeat
            )

    def start(self) -> None:
        """Start the tasks, once."""
        self._fork.check()
        if not self._is_stopping:
            self._loop = asyncio.get_running_loop()
            self._tasks.start()
            if self._heartbeater is not None:
                self._heartbeater.start()

    async def drive(self, steps: ConsumerSteps[Result]) -> Result:
        """Carry out a procedure of the core."""
        self._fork.check()
        self._core.note_returned()
        self._core.report()
        try:
            return await drive_async(steps, self._do)
        finally:
            self.wake()
            self._core.report()

    def wake(self) -> None:
        """Wake the tasks, if they would sleep past the next request."""
        if self._buffer.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()
        if self._heartbeater is not None:
            self._heartbeater.wake()
        if self._loop is not None and self._wake_ups is not None:
            self._wake_ups.wake()

    def wake_all(self) -> None:
        """After the assignment has changed: wake also the call that waits for records."""
        self._arrived.notify_all()
        self.wake()

    def interrupt(self) -> None:
        """Let the call that waits look again. Signal handlers and other threads may call it."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: no call waits
                self._loop.call_soon_threadsafe(self.wake_all)

    async def stop(self) -> None:
        """End the tasks, and give up the fetches in flight: they only read.

        Waits until the group has heard that the member leaves, if it does.
        """
        self._is_stopping = True
        self._arrived.notify_all()
        if self._buffer.waiting.watch is not None:
            self._buffer.waiting.watch.close()
        self._tasks.cancel()
        await self._tasks.join()
        if self._wake_ups is not None:
            await self._wake_ups.stop()
        if self._heartbeater is not None:
            await self._heartbeater.join()

    def _after_heartbeat(self) -> None:
        self._core.release_idle()
        self.wake()  # the heartbeat may have found records

    def _look_again(self) -> None:
        self._buffer.look_again()
        self.wake()

    async def _do(self, effect: HttpRequest | Wait | Notice) -> Document:
        self.wake()
        if isinstance(effect, Wait):
            await self._arrived.wait(effect.until_ms)
            return {}
        if isinstance(effect, Notice):
            answer = effect.callback(effect.partitions)
            if inspect.isawaitable(answer):
                await answer
            return {}
        return await self._client.document(effect)

    async def _next_request(self) -> FetchRequest | None:
        while True:
            request = self._buffer.next_request(monotonic_ms())
            if self._wake_ups is not None:
                self._wake_ups.wake()  # the buffer may want to watch other partitions now
            if request is not None:
                return request
            await self._sleep.until(self._buffer.wake_at_ms)

    async def _carry(self, request: FetchRequest) -> None:
        answer = await drive_async(fetch(request), self._client.try_once)
        self._buffer.complete(request, answer, monotonic_ms(), random_fraction())
        self._arrived.notify_all()
        self.wake()
