"""The tasks that carry a producer's requests to the service.

Up to `max_in_flight` tasks share one lock. Everything slow (compression, calls, callbacks) happens outside it.
"""

import asyncio
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary  # sync:

from penstock.arguments import checked_topic
from penstock.encryption.values import Encryption
from penstock.errors import ClosedError, LookUpFirst, as_maybe_applied
from penstock.http.async_client import AsyncClient
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Steps, Wait, drive_async
from penstock.producer.batching.accumulator import Entry
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock.producer.delivery import resolve
from penstock.producer.produce_call import ProduceResults, produce
from penstock.producer.producer_core import ProducerCore
from penstock.producer.tracing import ProducerTracing
from penstock.schemas.serialization import Serializers
from penstock.system import monotonic_ms, random_fraction, wall_clock_ns
from penstock.workers.async_workers import AsyncLock, AsyncSignal, AsyncSleep, AsyncWorkers, async_released
from penstock_core.errors import PenstockError
from penstock_core.records.codec import Headers


class AsyncSender:
    """Drives a producer's core. `lock` guards it. Compression runs in the threads of the event loop."""

    def __init__(
        self,
        core: ProducerCore,
        client: AsyncClient,
        *,
        acks: str,
        max_in_flight: int,
        tracing: ProducerTracing,
        encryption: Encryption | None,
        serializers: Serializers,
    ) -> None:
        self.lock = AsyncLock()
        self._progress = AsyncSignal()  # sync: self._progress = Signal(self.lock)
        self._sleep = AsyncSleep()  # sync: self._sleep = Sleep(self.lock)
        self._core = core
        self._accumulator = core.accumulator
        self._client = client
        self._acks = acks
        self._tracing = tracing
        self._encryption = encryption
        self._serializers = serializers
        self.is_serializing = bool(serializers)
        self._workers = AsyncWorkers("penstock-sender", max_in_flight, self._next_request, self._carry)
        self._is_stopping = False
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # sync:

    def turn(self, topic: str) -> asyncio.Lock:  # sync:
        """Of a topic's records: none overtakes another that waits for a data key or a schema."""
        return self._turns.setdefault(str(topic), asyncio.Lock())

    async def formed(self, topic: str, value: Any, key: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        """Value, key and headers as they are sent: serialized, then encrypted. May ask for schema or data key first."""
        if self.is_serializing:
            checked_topic(topic)
            value, key = await self._serialized(topic, value, key)
        if self._encryption is not None:
            value, headers = await self._encrypted(self._encryption, topic, value, key, headers)
        return value, key, headers

    async def _serialized(self, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
        while True:
            try:
                return self._serializers.serialize(topic, value, key)
            except LookUpFirst as missing:
                look_up = missing.look_up
            await asyncio.to_thread(look_up)  # sync: look_up()

    async def _encrypted(
        self, encryption: Encryption, topic: str, value: bytes | str | None, key: bytes | str | None, headers: Headers
    ) -> tuple[bytes | str | None, Headers]:
        checked_topic(topic)
        if value is not None and not encryption.has_data_key(topic):  # sync:
            await asyncio.to_thread(encryption.prepare, topic)
        return encryption.encrypt(topic, value, key=key, headers=headers)

    def wake(self) -> None:
        """Under the lock, after an append: wake the sender, if it would sleep past the next request."""
        if self._accumulator.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()

    @property
    def is_due(self) -> bool:  # sync:
        """The loop has a request to send, as soon as it comes to it."""
        return self._accumulator.wake_at_ms <= monotonic_ms()

    # sync: @property
    # sync: def is_calling_back(self) -> bool:
    # sync:     """True if the caller is an `on_delivery`: its thread cannot carry what it waits for."""
    # sync:     return self._workers.has_this_thread

    async def drive(self, steps: Steps[Result]) -> Result:
        """Under the lock: carry out a procedure of the core. The lock is released while the procedure waits.

        As of a client's call, an error has no frames of the procedure.
        """
        try:
            return await drive_async(steps, self._do)
        except PenstockError as error:
            raise error.with_traceback(None) from error.__cause__

    async def stop(self) -> None:
        """Fail the batches that are still queued, and wait until the tasks have finished the requests in flight."""
        self._abandon()
        await self._workers.join()

    async def abort(self) -> None:  # sync:
        """As `stop`, but give up the requests in flight: their records may have been delivered."""
        self._abandon()
        await self._workers.end()

    def _abandon(self) -> None:
        with self.lock:
            self._is_stopping = True
            finished = self._core.abandon()
            self._sleep.end()
            self._progress.notify_all()
        self._tell(finished)

    async def _do(self, effect: HttpRequest | Wait) -> Document:
        if isinstance(effect, Wait):
            self.wake()
            await self._progress.wait(effect.until_ms)
            return {}
        try:
            with async_released(self.lock):
                document = await self._client.document(effect)
        finally:
            self._progress.notify_all()  # a procedure may wait for this one
        self._workers.start()  # a topic is known now: there may be something to send
        return document

    async def _next_request(self) -> list[Entry] | None:
        """Wait for a request to send; None when stopping."""
        while True:
            with self.lock:
                now_ms = monotonic_ms()
                expired = self._accumulator.expire(now_ms)
                if expired:
                    self._progress.notify_all()
                else:
                    entries = self._accumulator.drain(now_ms)
                    if entries:
                        return entries
                    if self._is_stopping:
                        return None
                    await self._sleep.until(self._accumulator.wake_at_ms)
            self._tell(expired)

    async def _carry(self, entries: list[Entry]) -> None:
        started_ns = wall_clock_ns()
        try:  # sync: results: ProduceResults = drive(produce(entries, self._acks), self._client.try_once)
            with suppress(Exception):  # produce() meets the error again, and returns it
                await asyncio.to_thread(_build, entries)
            results: ProduceResults = await drive_async(produce(entries, self._acks), self._client.try_once)
        except asyncio.CancelledError:  # by abort(), or by the end of the loop: no task will send again
            self._abandon()
            given_up = as_maybe_applied(ClosedError("the producer was ended while the record was on its way"))
            self._complete(entries, [given_up] * len(entries), started_ns)
            raise
        self._complete(entries, results, started_ns)

    def _complete(self, entries: list[Entry], results: ProduceResults, started_ns: int) -> None:
        with self.lock:
            finished = self._accumulator.complete(entries, results, monotonic_ms(), random_fraction())
            self._progress.notify_all()
            self.wake()
        self._tracing.carried(entries, results, started_ns)
        self._tell(finished)

    def _tell(self, finished: list[ProducerBatch]) -> None:
        """Resolve futures and callbacks, for which a flush waits, too."""
        resolve(finished)
        if finished:
            with self.lock:
                self._progress.notify_all()


def _build(entries: list[Entry]) -> None:  # sync:
    for entry in entries:
        for batch in entry.batches:
            batch.build()
