"""The producer for asyncio. producer_core.py and accumulator.py decide, async_sender.py does."""

import asyncio
from types import TracebackType
from typing import Self

from penstock.arguments import check_callable, check_timeout
from penstock.async_client import AsyncClient
from penstock.async_sender import AsyncSender
from penstock.async_transaction import AsyncTransaction
from penstock.async_transport import AsyncTransport, open_async_transport
from penstock.configured_producer import ConfiguredProducer
from penstock.delivery import CallbackFollower, DeliveryCallback, FutureFollower
from penstock.model import RecordMetadata
from penstock.retry import NEVER_MS
from penstock.system import monotonic_ms, wall_clock_ms
from penstock_core.records import Headers


class AsyncProducer(ConfiguredProducer[AsyncTransport]):
    """Sends records, in batches, from tasks of the event loop. Settings: see `__init__`, they are Producer's.

        async with AsyncProducer() as producer:
            sent = await producer.send("orders", b"...", key=b"customer 7")  # it is in a batch
            metadata = await sent                                            # it is delivered

    For one event loop. Close it, or use it in `async with`: what a loop that ends finds undelivered has failed.
    """

    def _open(self, url: str | None, region: str | None, transport: AsyncTransport | None) -> None:
        self._client = AsyncClient(
            open_async_transport(url, region, transport), retry=self._call_retry, timeout_ms=self._call_timeout_ms
        )
        self._sender = AsyncSender(self._core, self._client, acks=self._acks, max_in_flight=self._max_in_flight)

    async def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """As Producer.send; waiting for memory or for a topic's description lets the loop go on.

        If it is cancelled, or raises, the record was not sent. Cancelling the future that it returns calls nothing
        back; an error that nobody awaits is in the log.
        """
        if timestamp_ms is None:
            timestamp_ms = wall_clock_ms()
        if on_delivery is not None:
            check_callable("on_delivery", on_delivery)
        await self._sender.give_way()
        batch = self._core.append_now(topic, value, key, headers, partition, timestamp_ms)
        if batch is None:
            batch = await self._sender.drive(self._core.append(topic, value, key, headers, partition, timestamp_ms))
        index = batch.record_count - 1
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        batch.followers.append(FutureFollower(sent, batch, index, timestamp_ms))
        callback = on_delivery or self._on_delivery
        if callback is not None:
            batch.followers.append(CallbackFollower(callback, batch, index, timestamp_ms))
        self._sender.wake()
        return sent

    def transaction(self) -> AsyncTransaction:
        """A transaction, to be used in `async with`; one at a time. Needs a `transactional_id`."""
        return AsyncTransaction(self._core, self._sender, self._transactional_state())

    async def flush(self, timeout: float | None = None) -> None:
        """Send what waits without lingering, and wait until everything sent before has been delivered or has failed.

        Failures are told by the futures and callbacks, not here. `timeout` in seconds: raises TimeoutError.
        """
        check_timeout(timeout)
        if not await self._flush(timeout):
            raise TimeoutError(f"not everything was delivered in {timeout} s")

    async def close(self, timeout: float | None = None) -> None:
        """Flush, then end the tasks. What `timeout` (seconds) leaves undelivered fails with ClosedError.

        May be called twice. Requests in flight when the time runs out are still waited for; a cancellation gives them
        up.
        """
        check_timeout(timeout)
        if self._core.is_closed:
            return
        self._core.is_closed = True
        try:
            await self._flush(timeout)
            await self._sender.stop()
        except asyncio.CancelledError:
            await self._sender.abort()
            raise
        finally:
            await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _flush(self, timeout: float | None) -> bool:
        deadline_ms = NEVER_MS if timeout is None else monotonic_ms() + int(timeout * 1_000)
        return await self._sender.drive(self._core.flush(deadline_ms))
