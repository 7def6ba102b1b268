"""The producer as users see it: settings, `send`, `flush`, `close`. accumulator.py decides, sender.py does."""

import atexit
import random
import time
import weakref
from functools import lru_cache, partial
from types import TracebackType
from typing import Self

from penstock.accumulator import Accumulator, AccumulatorSettings
from penstock.client import Client, monotonic_ms
from penstock.delivery import CallbackFollower, Delivery, DeliveryCallback
from penstock.errors import (
    BufferFullError,
    ClosedError,
    InvalidError,
    UnavailableError,
    UnknownPartitionError,
    as_sdk_error,
)
from penstock.producer_batch import ProducerBatch, TopicQueues
from penstock.retry import NEVER_MS, RetryPolicy
from penstock.sender import Sender
from penstock.transport import Transport, open_transport
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, BATCH_BYTES_MAX, KIB, MIB, REQUEST_BYTES_MAX
from penstock_core.partitioner import partition_for_key
from penstock_core.record_batch import Compression
from penstock_core.records import Headers

ACKS = ("none", "leader", "quorum", "all")
KEYS_REMEMBERED = 100_000  # hashing a key in Python takes longer than all else in send()
DESCRIBE_AGAIN_MS = 1_000
EXIT_FLUSH_S = 10

_partition_for_key = lru_cache(maxsize=KEYS_REMEMBERED)(partition_for_key)


class Producer:
    """Sends records, in batches, from background threads.

    `url` and `region` are found as penstock.configuration says if they are not given; `transport` replaces HTTP
    (penstock.testing). All times are milliseconds, all sizes bytes before compression.

    - `acks`: how many zones hold the bytes before a send counts as delivered: "leader" (the first), "quorum"
      (a majority), "all" (every zone in sync); "none" is as leader, without retries.
    - `linger_ms`: how long a record may wait for company. `batch_bytes`: a batch that is this full waits no longer
      (the topic's `max_batch_bytes` bounds it too). `max_request_bytes`: batches of up to 100 partitions, of any
      topics, travel in one request; 4 MiB at most.
    - `compression_type`: "none", "gzip", "snappy", "lz4" or "zstd".
    - `buffer_bytes`: what may wait or be on its way; send() then waits up to `max_block_ms` for room.
    - `max_in_flight`: requests at once. A partition is never in two, so that its order is kept through retries.
    - `delivery_timeout_ms`: from send() to giving up. Retries wait with full jitter, `retry_backoff_ms` at first and
      `retry_backoff_max_ms` at most, and longer where the service says so (Retry-After).
    - `on_delivery`: called for every record as `on_delivery(error, metadata)`, in a sender thread; be quick there.

    Delivery is at least once: sends are not deduplicated yet. A request whose answer was lost may have been applied,
    and its retry then stores the same records a second time. `acks="none"` never repeats, and may lose.

    Safe for use by several threads; order between threads is the order of their calls. Not usable across fork().
    Close it, or use it in `with`: what is left at interpreter exit is given ten seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        acks: str = "quorum",
        linger_ms: int = 5,
        batch_bytes: int = 256 * KIB,
        compression_type: str = "zstd",
        max_request_bytes: int = REQUEST_BYTES_MAX,
        buffer_bytes: int = 32 * MIB,
        max_in_flight: int = 5,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 5_000,
        metadata_max_age_ms: int = 300_000,
        on_delivery: DeliveryCallback | None = None,
        region: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        _check(acks in ACKS, f"acks={acks!r}: use one of {', '.join(ACKS)}")
        _check(linger_ms >= 0, f"linger_ms={linger_ms}: use 0 or more")
        _check(0 < batch_bytes <= BATCH_BYTES_MAX, f"batch_bytes={batch_bytes}: use 1 to {BATCH_BYTES_MAX}")
        _check(
            batch_bytes < max_request_bytes <= REQUEST_BYTES_MAX,
            f"max_request_bytes={max_request_bytes}: use more than batch_bytes, and {REQUEST_BYTES_MAX} at most",
        )
        _check(buffer_bytes >= batch_bytes, f"buffer_bytes={buffer_bytes}: use at least batch_bytes ({batch_bytes})")
        _check(max_in_flight >= 1, f"max_in_flight={max_in_flight}: use 1 or more")
        retry = RetryPolicy(backoff_ms=retry_backoff_ms, backoff_max_ms=retry_backoff_max_ms)
        settings = AccumulatorSettings(
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            request_bytes=max_request_bytes,
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            compression=_compression(compression_type),
            retry=None if acks == "none" else retry,
        )
        self._batch_bytes = batch_bytes
        self._max_block_ms = max_block_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._on_delivery = on_delivery
        self._client = Client(open_transport(url, region, transport), retry=retry, timeout_ms=max_block_ms)
        self._accumulator = Accumulator(settings, random.randrange)
        self._sender = Sender(self._accumulator, self._client, acks=acks, max_in_flight=max_in_flight)
        self._lock = self._sender.lock
        self._topics: dict[str, TopicQueues] = {}
        self._is_closed = False
        # Weak: an abandoned producer must not live for this. One callable each, so that close() can take it back.
        self._at_exit = partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Put a record into its partition's batch, and return its future: a RecordMetadata, or the error.

        Text is sent as UTF-8; a value of None is a tombstone. Without `partition`, a key's murmur2 hash decides, as in
        Kafka's Java client, and records without key go in turns of a batch to partitions chosen by chance.
        `timestamp_ms` is now if not given. Waits for memory, and at a topic's first record for its description, up to
        `max_block_ms` each.

        Raises UnknownTopicError, UnknownPartitionError, RecordTooLargeError, BufferFullError, ClosedError, and what a
        call to the service may raise; the record was not sent then.
        """
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        now_ms = monotonic_ms()
        queues = self._topics.get(topic)
        if queues is None or queues.fresh_until_ms < now_ms:
            queues = self._describe(topic, now_ms)
        if partition is not None:
            self._check_partition(queues, partition)
        elif key is not None:
            try:
                partition = _partition_for_key(key, queues.partitions)
            except TypeError as error:
                raise _wrong_type(error) from error
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        with self._lock:
            if self._is_closed:
                raise ClosedError("send() on a closed producer")
            batch = self._append(queues, partition, key, value, headers, timestamp_ms, now_ms)
            delivery = Delivery(batch, batch.record_count - 1, timestamp_ms)
            callback = on_delivery or self._on_delivery
            if callback is not None:
                batch.followers.append(CallbackFollower(callback, delivery))
            self._sender.wake()
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        """Send what waits without lingering, and wait until everything sent before has been delivered or has failed.

        Failures are told by the futures and callbacks, not here. `timeout` in seconds: raises TimeoutError.
        """
        deadline_ms = NEVER_MS if timeout is None else monotonic_ms() + int(timeout * 1_000)
        if not self._sender.flush(deadline_ms):
            raise TimeoutError(f"not everything was delivered in {timeout} s")

    def close(self, timeout: float | None = None) -> None:
        """Flush, then end the threads. What `timeout` (seconds) leaves undelivered fails with ClosedError.

        May be called twice. Requests in flight when the time runs out are still waited for.
        """
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed:
            return
        atexit.unregister(self._at_exit)
        self._sender.flush(NEVER_MS if timeout is None else monotonic_ms() + int(timeout * 1_000))
        self._sender.stop()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _describe(self, topic: str, now_ms: int) -> TopicQueues:
        """Learn or refresh a topic: one call, when it is first used and each `metadata_max_age_ms`."""
        known = self._topics.get(topic)
        try:
            described = self._client.topic_metadata(topic)
        except UnavailableError:
            if known is None:
                raise
            # The old description does; ask again soon.
            known.fresh_until_ms = now_ms + DESCRIBE_AGAIN_MS
            return known
        batch_bytes_max = int(described.config.get("max_batch_bytes", BATCH_BYTES_DEFAULT_MAX))
        with self._lock:
            self._sender.start()
            queues = self._topics.setdefault(topic, TopicQueues(topic))
            queues.update(described.partitions, self._batch_bytes, batch_bytes_max)
            queues.fresh_until_ms = now_ms + self._metadata_max_age_ms
        return queues

    def _check_partition(self, queues: TopicQueues, partition: int) -> None:
        if partition >= queues.partitions:
            self._describe(queues.name, monotonic_ms())
        if not 0 <= partition < queues.partitions:
            raise UnknownPartitionError(
                ErrorCode.UNKNOWN_PARTITION,
                f"topic {queues.name!r} has no partition {partition}: it has 0 to {queues.partitions - 1}",
            )

    def _append(
        self,
        queues: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
    ) -> ProducerBatch:
        """Under the lock: wait for memory if need be."""
        append = self._accumulator.append
        try:
            batch = append(queues, partition, key, value, headers, timestamp_ms, now_ms)
            while batch is None:
                self._wait_for_memory(now_ms)
                batch = append(queues, partition, key, value, headers, timestamp_ms, monotonic_ms())
        except PenstockError as error:
            raise as_sdk_error(error) from None
        except (TypeError, ValueError) as error:
            raise _wrong_type(error) from error
        return batch

    def _wait_for_memory(self, since_ms: int) -> None:
        if not self._sender.wait_for_memory(since_ms + self._max_block_ms):
            raise BufferFullError(
                f"no room for a record after max_block_ms={self._max_block_ms}: {self._accumulator.buffered_bytes:,} "
                "bytes wait for delivery; send slower, raise buffer_bytes, or see why deliveries are slow"
            )
        if self._is_closed:
            raise ClosedError("the producer was closed while send() waited for memory")


def _wrong_type(error: Exception) -> InvalidError:
    return InvalidError(
        ErrorCode.INVALID_REQUEST,
        f"{error}: give bytes, str or None for key and value, and (str, bytes or None) pairs for headers",
    )


def _compression(name: str) -> Compression:
    try:
        return Compression.parse(name)
    except PenstockError as error:
        raise as_sdk_error(error) from None


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidError(ErrorCode.INVALID_REQUEST, message)


def _close_at_exit(reference: "weakref.ref[Producer]") -> None:
    producer = reference()
    if producer is not None:
        producer.close(EXIT_FLUSH_S)
