"""The tasks of a consumer: fetcher.py for an event loop, which needs no lock."""

import inspect

from penstock.async_client import AsyncClient
from penstock.async_heartbeater import AsyncHeartbeater
from penstock.consumer_core import ConsumerCore
from penstock.fetch_buffer import FetchRequest
from penstock.http_message import Document, Request
from penstock.listener import ConsumerSteps, Notice
from penstock.record_calls import fetch
from penstock.steps import Result, Wait, drive_async
from penstock.system import chance, monotonic_ms
from penstock.worker_tasks import Change, WorkerTasks


class AsyncFetcher:
    """Drives a consumer's core and its buffer; call `wake` after a change."""

    def __init__(self, core: ConsumerCore, client: AsyncClient, *, max_in_flight: int) -> None:
        self._buffer = core.buffer
        self._client = client
        self._arrived = Change()
        self._work = Change()
        self._sleeps_until_ms = -1
        self._is_stopping = False
        self._tasks = WorkerTasks("penstock-fetcher", max_in_flight, self._next_request, self._carry)
        self._heartbeater: AsyncHeartbeater | None = None
        if core.membership is not None:
            self._heartbeater = AsyncHeartbeater(
                core.membership, core.group_id, client, changed=self._arrived, follow=core.release_idle
            )

    def start(self) -> None:
        """Start the tasks, once."""
        if not self._is_stopping:
            self._tasks.start()
            if self._heartbeater is not None:
                self._heartbeater.start()

    async def drive(self, steps: ConsumerSteps[Result]) -> Result:
        """Carry out a procedure of the core."""
        try:
            return await drive_async(steps, self._do)
        finally:
            self.wake()

    def wake(self) -> None:
        """Let the tasks look, if they would sleep past what there is to do."""
        if self._buffer.wake_at_ms < self._sleeps_until_ms:
            self._sleeps_until_ms = -1
            self._work.tell()
        if self._heartbeater is not None:
            self._heartbeater.wake()

    def tell(self) -> None:
        """Let everybody look, who waits for records too, as something else is to be read."""
        self._arrived.tell()
        self.wake()

    async def stop(self) -> None:
        """End the tasks, and give up the fetches in flight: they only read. Waits until the group is left if it is to
        be."""
        self._is_stopping = True
        self._arrived.tell()
        self._tasks.cancel()
        await self._tasks.join()
        if self._heartbeater is not None:
            await self._heartbeater.join()

    async def _do(self, effect: Request | Wait | Notice) -> Document:
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
            if request is not None:
                return request
            self._sleeps_until_ms = self._buffer.wake_at_ms
            await self._work.wait(self._buffer.wake_at_ms)
            self._sleeps_until_ms = -1

    async def _carry(self, request: FetchRequest) -> None:
        answer = await drive_async(fetch(request), self._client.try_once)
        self._buffer.complete(request, answer, monotonic_ms(), chance())
        self._arrived.tell()
        self.wake()
