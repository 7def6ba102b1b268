"""The tasks that carry a producer's requests to the service: sender.py for an event loop, which needs no lock."""

import asyncio
from contextlib import suppress

from penstock.accumulator import Entry
from penstock.async_client import AsyncClient
from penstock.delivery import follow_up
from penstock.errors import ClosedError, as_maybe_applied
from penstock.http_message import Document, Request
from penstock.producer_core import ProducerCore
from penstock.record_calls import ProduceResults, produce
from penstock.steps import Result, Steps, Wait, drive_async
from penstock.system import chance, monotonic_ms
from penstock.worker_tasks import Change, WorkerTasks


class AsyncSender:
    """Drives a producer's core. Compression runs in the loop's threads."""

    def __init__(self, core: ProducerCore, client: AsyncClient, *, acks: str, max_in_flight: int) -> None:
        self._core = core
        self._accumulator = core.accumulator
        self._client = client
        self._acks = acks
        self._progress = Change()
        self._work = Change()
        self._sleeps_until_ms = -1
        self._tasks = WorkerTasks("penstock-sender", max_in_flight, self._next_request, self._carry)
        self._is_stopping = False

    def wake(self) -> None:
        """After an append: let the sender look, if it would sleep past what there is to do."""
        if self._accumulator.wake_at_ms < self._sleeps_until_ms:
            self._sleeps_until_ms = -1
            self._work.tell()

    async def give_way(self) -> None:
        """Let the loop send what is due: a program that sends without ever waiting would keep it from it."""
        if self._accumulator.wake_at_ms <= monotonic_ms():
            await asyncio.sleep(0)

    async def drive(self, steps: Steps[Result]) -> Result:
        """Carry out a procedure of the core."""
        return await drive_async(steps, self._do)

    async def stop(self) -> None:
        """Fail what is still queued, and wait for the tasks to end: for the requests in flight, that is."""
        self._abandon()
        await self._tasks.join()

    async def abort(self) -> None:
        """As `stop`, but give up the requests in flight: their records may have been delivered."""
        self._abandon()
        self._tasks.cancel()
        await self._tasks.join()

    def _abandon(self) -> None:
        self._is_stopping = True
        finished = self._core.abandon()
        self._work.tell()
        self._progress.tell()
        follow_up(finished)

    async def _do(self, effect: Request | Wait) -> Document:
        if isinstance(effect, Wait):
            self.wake()
            await self._progress.wait(effect.until_ms)
            return {}
        document = await self._client.document(effect)
        self._tasks.start()  # a topic is known now: there may be something to send
        return document

    async def _next_request(self) -> list[Entry] | None:
        """Wait for something to send; None when stopping."""
        while True:
            now_ms = monotonic_ms()
            expired = self._accumulator.expire(now_ms)
            if expired:
                self._progress.tell()
                follow_up(expired)
                continue
            entries = self._accumulator.drain(now_ms)
            if entries:
                return entries
            if self._is_stopping:
                return None
            self._sleeps_until_ms = self._accumulator.wake_at_ms
            await self._work.wait(self._accumulator.wake_at_ms)
            self._sleeps_until_ms = -1

    async def _carry(self, entries: list[Entry]) -> None:
        try:
            with suppress(Exception):  # produce() meets it again, and tells
                await asyncio.to_thread(_build, entries)
            results: ProduceResults = await drive_async(produce(entries, self._acks), self._client.try_once)
        except asyncio.CancelledError:  # by abort(), or by the end of the loop: nobody will send again
            self._abandon()
            given_up = as_maybe_applied(ClosedError("the producer was ended while the record was on its way"))
            self._complete(entries, [given_up] * len(entries))
            raise
        self._complete(entries, results)

    def _complete(self, entries: list[Entry], results: ProduceResults) -> None:
        finished = self._accumulator.complete(entries, results, monotonic_ms(), chance())
        self._progress.tell()
        self.wake()
        follow_up(finished)


def _build(entries: list[Entry]) -> None:
    for entry in entries:
        for batch in entry.batches:
            batch.build()
