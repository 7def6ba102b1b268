"""The producer for asyncio. producer_core.py and accumulator.py decide, async_sender.py does the I/O."""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from penstock.arguments import check_callable, check_timeout
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport, open_async_transport
from penstock.http.named_transport import TransportName
from penstock.http.transport import request_bytes_max_of
from penstock.model import RecordMetadata
from penstock.options import shows_fields_of
from penstock.producer.async_sender import AsyncSender
from penstock.producer.async_transaction import AsyncTransaction
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock.producer.delays import Timer
from penstock.producer.delivery import CallbackFollower, DeliveryCallback, follow
from penstock.producer.producer_core import ProducerCore
from penstock.producer.settings import ProducerOptions, ProducerSettings
from penstock.producer.tracing import ProducerTracing
from penstock.retry import NEVER_MS
from penstock.system import NS_PER_MS, choose, monotonic_ms, new_nonce, wall_clock_ns
from penstock.workers.fork_guard import ForkGuard
from penstock_core.records.codec import Headers

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext


class AsyncProducer:
    """`Producer` for asyncio: it sends records, in batches, from tasks of the event loop.

        async with AsyncProducer() as producer:
            sent = await producer.send("orders", b"...", key=b"customer 7")  # it is in a batch
            metadata = await sent                                            # it is delivered

    A producer belongs to one event loop. Close it, or use it in `async with`. Records that are not delivered when the
    loop ends have failed.
    """

    @shows_fields_of(ProducerSettings)
    def __init__(
        self,
        url: str | None = None,
        *,
        region: str | None = None,
        transport: AsyncTransport | TransportName | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """As `Producer`. Needs the extra `penstock[async]`, unless a transport is given."""
        settings = ProducerSettings(**options)
        self._on_delivery = settings.on_delivery
        self._fork = ForkGuard("AsyncProducer")
        self._core = ProducerCore(settings, now_ms=monotonic_ms, choose=choose, new_nonce=new_nonce)
        carrier = open_async_transport(url, region, transport)
        settings.check_carrier(request_bytes_max_of(carrier))
        self._client = AsyncClient(carrier, retry=settings.retry, timeout_ms=settings.max_block_ms)
        self._tracing = ProducerTracing(carrier, has_spans=settings.trace_records)
        self._sender = AsyncSender(
            self._core,
            self._client,
            acks=settings.wire_acks,
            max_in_flight=settings.max_in_flight,
            tracing=self._tracing,
        )

    async def send(  # noqa: PLR0913 - as Producer.send
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        cancellable: bool = False,
        on_delivery: DeliveryCallback | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """As `Producer.send`; while it waits for memory or for a topic's description, other tasks run.

        If it raises or is cancelled, the record was not sent. If you cancel the future, the record is sent all the
        same. The log has each error, also those that your program does not await.
        """
        if self._fork.is_forked:
            self._fork.check()
        if timestamp_ms is None:
            timestamp_ms = wall_clock_ns() // NS_PER_MS
        timer = None
        if deliver_at_ms is not None or delay_ms is not None or cancellable:
            timer = self._core.timers.timer(deliver_at_ms, delay_ms, cancellable=cancellable)
        if on_delivery is None:
            on_delivery = self._on_delivery
        else:
            check_callable("on_delivery", on_delivery)
        if self._sender.is_due:
            await asyncio.sleep(0)  # a program that never waits would keep the loop from sending
        if not self._tracing.is_on:
            batch = self._core.append_now(topic, value, key, headers, partition, timestamp_ms, timer)
            if batch is not None:
                return self._followed(batch, timestamp_ms, on_delivery)
            return await self._append(topic, value, key, headers, partition, timestamp_ms, timer, on_delivery)
        with self._tracing.creating(topic, headers) as (told, origin):
            return await self._append(topic, value, key, told, partition, timestamp_ms, timer, on_delivery, origin)

    def transaction(self) -> AsyncTransaction:
        """As `Producer.transaction`, for `async with`."""
        self._fork.check()
        return AsyncTransaction(self._core, self._sender, self._tracing)

    async def init_transactions(self) -> None:
        """As `Producer.init_transactions`, awaited."""
        async with self.transaction():
            pass

    async def flush(self, timeout: float | None = None) -> None:
        """As `Producer.flush`, awaited."""
        self._fork.check()
        check_timeout(timeout)
        if not await self._flush(timeout):
            raise TimeoutError(f"not everything was delivered in {timeout} s")

    async def close(self, timeout: float | None = None) -> None:
        """As `Producer.close`, awaited. A cancellation gives up the requests in flight."""
        check_timeout(timeout)
        if self._core.is_closed or self._fork.is_forked:
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
        """The producer."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it, without a time limit."""
        await self.close()

    async def _append(  # noqa: PLR0913 - as send
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
        timer: Timer | None,
        on_delivery: DeliveryCallback | None,
        origin: "SpanContext | None" = None,
    ) -> asyncio.Future[RecordMetadata]:
        batch = self._core.append_now(topic, value, key, headers, partition, timestamp_ms, timer)
        if batch is None:
            batch = await self._sender.drive(
                self._core.append(topic, value, key, headers, partition, timestamp_ms, timer)
            )
        if origin is not None:
            batch.note_origin(origin)
        return self._followed(batch, timestamp_ms, on_delivery)

    def _followed(
        self, batch: ProducerBatch, timestamp_ms: int, on_delivery: DeliveryCallback | None
    ) -> asyncio.Future[RecordMetadata]:
        """The future of the batch's last record."""
        index = batch.record_count - 1
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        follow(batch, sent, index, timestamp_ms)
        if on_delivery is not None:
            batch.followers.append(CallbackFollower(on_delivery, batch, index, timestamp_ms))
        if index == 0:  # only a new batch can be due before the sender's sleep ends
            self._sender.wake()
        return sent

    async def _flush(self, timeout: float | None) -> bool:
        deadline_ms = NEVER_MS if timeout is None else monotonic_ms() + int(timeout * 1_000)
        return await self._sender.drive(self._core.flush(deadline_ms))
