"""The producer. producer_core.py and accumulator.py decide, async_sender.py does the I/O."""

import asyncio
from collections.abc import Sequence

# sync: import atexit
# sync: import threading
# sync: import weakref
# sync: from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from penstock.arguments import check_callable, check_timeout, checked_headers
from penstock.http.abilities import request_bytes_max_of, wall_clock_ns_of
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport, open_async_stages
from penstock.http.named_transport import TransportName
from penstock.model import HeadersToSend, RecordMetadata
from penstock.model.fields import NamedClient, settings_of, shows_fields_of
from penstock.producer.async_sender import AsyncSender
from penstock.producer.async_transaction import AsyncTransaction
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock.producer.delays import Timer
from penstock.producer.delivery import CallbackFollower, DeliveryCallback, follow
from penstock.producer.producer_core import ProducerCore
from penstock.producer.settings import ProducerOptions, ProducerSettings
from penstock.producer.tracing import ProducerTracing
from penstock.retry import NEVER_MS
from penstock.schemas.serialization import Serializers
from penstock.system import NS_PER_MS, choose, monotonic_ms, new_nonce
from penstock.workers.fork_guard import ForkGuard
from penstock_core.records.codec import Headers

# sync: from penstock.errors import InvalidError
# sync: from penstock.producer.delivery import Delivery
# sync: from penstock_core.errors import ErrorCode
# sync: from penstock_core.limits import SDK_EXIT_FLUSH_S

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext


class AsyncProducer(NamedClient):
    """Sends records, in batches, from tasks of the event loop.

        async with AsyncProducer() as producer:
            sent = await producer.send("orders", b"...", key=b"customer 7")  # it is in a batch
            metadata = await sent                                            # it is delivered

    A producer belongs to one event loop: records go in the order of the calls. In a child by fork() it raises
    ForkedError. Close it, or use it in `async with`. Records that are not delivered when the loop ends have failed.
    """

    @shows_fields_of(ProducerSettings)
    def __init__(
        self,
        url: str | None = None,
        *,
        urls: Sequence[str] | None = None,
        region: str | None = None,
        transport: AsyncTransport | TransportName | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Opens no connection yet.

        `url` and `region` default to what penstock.configuration finds: the environment, else the local stack. `urls`
        in place of `url` are those of stages of which one mirrors the other: the producer goes to the one that takes
        appends, and logs it. `transport` replaces `auto`: a name (docs/how-to/transports.md), or an object as of
        penstock.testing. Raises NotConfiguredError, and InvalidError for an option. Needs the extra `penstock[async]`,
        unless a transport is given.
        """
        settings = settings_of(ProducerSettings, "Producer", options)
        self._on_delivery = settings.on_delivery
        self._fork = ForkGuard("AsyncProducer")
        carrier = open_async_stages(url, urls, region, transport)
        self._wall_ns = wall_clock_ns_of(carrier)
        self._core = ProducerCore(
            settings, now_ms=monotonic_ms, choose=choose, new_nonce=new_nonce, wall_ns=self._wall_ns
        )
        settings.check_carrier(request_bytes_max_of(carrier))
        self._client = AsyncClient(carrier, retry=settings.retry, timeout_ms=settings.max_block_ms, job="write")
        self._tracing = ProducerTracing(carrier, has_spans=settings.trace_records)
        self._sender = AsyncSender(
            self._core,
            self._client,
            acks=settings.wire_acks,
            max_in_flight=settings.max_in_flight,
            tracing=self._tracing,
            encryption=settings.encryption,
            serializers=Serializers(settings.value_serializer, settings.key_serializer),
        )
        self.is_encrypting = settings.encryption is not None
        self.is_serializing = self._sender.is_serializing
        self._lock = self._sender.lock
        # sync: # Weak, so that an abandoned producer can go. One callable each, so that close() can take it back.
        # sync: self._at_exit = partial(_close_at_exit, weakref.ref(self))
        # sync: atexit.register(self._at_exit)

    async def send(  # noqa: PLR0913 - callers name all but two
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: HeadersToSend = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        cancellable: bool = False,
        expires_in_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into its partition's batch and return its future: the RecordMetadata, or the error.

        Value and key are bytes, text (sent as UTF-8) or None, or what the serializers take. Headers are a dict, or
        pairs. A value of None is a tombstone. Without `partition` the murmur2 hash of the key decides, as in Kafka's
        Java client. Records without a key go to one partition, 16 KiB of them or more, and then to the one that has had
        the fewest bytes; slow partitions get less. The setting `partitioner` decides before all that. `timestamp_ms`
        defaults to now.

        With `delay_ms`, or `deliver_at_ms` (milliseconds since 1970), the record waits in the service and gets its
        offset when it comes: not before that time, and some seconds after it at most. It may wait a year. The future is
        done when the record waits. With `cancellable=True` its metadata has a `scheduled_id` for
        `Admin.cancel_scheduled`; such a record has a timer of its own, and costs more. Records of one partition and due
        time keep their order.

        With `expires_in_ms`, share groups and subscriptions finish the record that long after this call without handing
        it out; a delayed one that long after its due time. Consumers skip it with `skip_expired=True`.

        The call may wait `max_block_ms` for memory, and as long for the description of a new topic.

        Raises UnknownTopicError, UnknownPartitionError, RecordTooLargeError, BufferFullError, ClosedError, ForkedError,
        InvalidError, such as for no key in a compacted topic, and the errors of a call to the service. If it raises,
        the record was not sent. Nor was it after a cancellation of this call. If the future is cancelled, the record
        is sent all the same.
        """
        if self._fork.is_forked:
            self._fork.check()
        told = checked_headers(headers) if headers else ()
        if timestamp_ms is None:
            timestamp_ms = self._wall_ns() // NS_PER_MS
        timer = None
        if deliver_at_ms is not None or delay_ms is not None or cancellable:
            timer = self._core.timers.timer(deliver_at_ms, delay_ms, cancellable=cancellable)
        if expires_in_ms is not None:
            told = self._core.timers.expiring(told, expires_in_ms, timer)
        if on_delivery is None:
            on_delivery = self._on_delivery
        else:
            check_callable("on_delivery", on_delivery)
        if self._sender.is_due:  # sync:
            await asyncio.sleep(0)  # a program that never waits would keep the loop from sending
        if self.is_encrypting or self.is_serializing:
            # In turns: no record overtakes one of its topic that waits for a data key or a schema.
            turn = self._sender.turn(topic)  # sync:
            async with turn:  # sync: value, key, told = self._sender.formed(topic, value, key, told)
                value, key, told = await self._sender.formed(topic, value, key, told)
                with self._tracing.creating(topic, told) as (told, origin):
                    return await self._append(
                        topic, value, key, told, partition, timestamp_ms, timer, on_delivery, origin
                    )
        if not self._tracing.is_on:
            batch = self._core.append_now(topic, value, key, told, partition, timestamp_ms, timer)  # sync:
            if batch is not None:  # sync:
                return self._followed(batch, timestamp_ms, on_delivery)
            return await self._append(topic, value, key, told, partition, timestamp_ms, timer, on_delivery)
        with self._tracing.creating(topic, told) as (told, origin):
            return await self._append(topic, value, key, told, partition, timestamp_ms, timer, on_delivery, origin)

    def transaction(self) -> AsyncTransaction:
        """A transaction for `async with`, one at a time. Raises InvalidError without a `transactional_id`."""
        self._fork.check()
        return AsyncTransaction(self._core, self._sender, self._tracing)

    async def init_transactions(self) -> None:
        """Begin an epoch now, unless the producer has one: each earlier instance with its `transactional_id` is fenced.

        The first transaction does so too. Call this before you read the offset from which you go on, if the consumer
        is no member of its group: no commit of an earlier instance comes after that offset then. `AsyncTransformer`
        calls it. One request. Raises as `transaction`, FencedError, and the errors of a call.
        """
        async with self.transaction():
            pass

    async def flush(self, timeout: float | None = None) -> None:
        """Send all batches now, and wait until each record that was sent before is delivered or has failed.

        Futures and callbacks tell of failures; this does not raise them. Raises TimeoutError after `timeout` seconds.
        """  # sync:
        # sync: """Send all batches now, and wait until each record that was sent before is delivered or has failed.
        # sync:
        # sync: Futures and callbacks tell of failures; this does not raise them. Raises TimeoutError after `timeout`
        # sync: seconds, and InvalidError in `on_delivery`: the thread that calls it back is one that delivers.
        # sync: """
        self._fork.check()
        # sync: if self._sender.is_calling_back:
        # sync:     why = "flush() in on_delivery waits for itself: call it outside"
        # sync:     raise InvalidError(ErrorCode.INVALID_REQUEST, why)
        check_timeout(timeout)
        if not await self._flush(timeout):
            raise TimeoutError(f"not everything was delivered in {timeout} s")

    async def close(self, timeout: float | None = None) -> None:
        """Flush, then end the tasks. Records that are not delivered in `timeout` seconds fail with ClosedError.

        You may call it twice. It waits for the requests that are in flight when the time is over. A cancellation gives
        them up.
        """  # sync:
        # sync: """Flush, then end the threads. Records that are late after `timeout` seconds fail with ClosedError.
        # sync:
        # sync: You may call it twice. It waits for the requests that are in flight when the time is over. In
        # sync: `on_delivery` it does not wait: another thread does.
        # sync: """
        check_timeout(timeout)
        if self._fork.is_forked:
            return  # the records are the parent's to deliver, and so are the connections
        with self._lock:
            was_closed, self._core.is_closed = self._core.is_closed, True
        if was_closed:
            return
        # sync: atexit.unregister(self._at_exit)
        # sync: if self._sender.is_calling_back:  # another thread waits in its place
        # sync:     threading.Thread(target=self._end, args=(timeout,), name="penstock-producer-close").start()
        # sync:     return
        await self._end(timeout)

    async def _end(self, timeout: float | None) -> None:
        try:
            await self._flush(timeout)
            await self._sender.stop()
        except asyncio.CancelledError:  # sync:
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
        with self._lock:
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
        """Under the lock: the future of the batch's last record."""
        index = batch.record_count - 1
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()  # sync:
        follow(batch, sent, index, timestamp_ms)  # sync:
        if on_delivery is not None:
            batch.followers.append(CallbackFollower(on_delivery, batch, index, timestamp_ms))
        if index == 0:  # only a new batch can be due before the sender's sleep ends
            self._sender.wake()
        return sent  # sync: return Delivery(batch, index, timestamp_ms)

    async def _flush(self, timeout: float | None) -> bool:
        deadline_ms = NEVER_MS if timeout is None else monotonic_ms() + int(timeout * 1_000)
        with self._lock:
            return await self._sender.drive(self._core.flush(deadline_ms))


# sync: def _close_at_exit(reference: "weakref.ref[Producer]") -> None:
# sync:     producer = reference()
# sync:     if producer is not None:
# sync:         producer.close(SDK_EXIT_FLUSH_S)
