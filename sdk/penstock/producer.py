"""The producer with threads. producer_core.py and accumulator.py decide, sender.py does."""

import atexit
import weakref
from functools import partial
from types import TracebackType
from typing import Self

from penstock.arguments import check_callable, check_timeout
from penstock.client import Client
from penstock.configured_producer import ConfiguredProducer
from penstock.delivery import CallbackFollower, Delivery, DeliveryCallback
from penstock.retry import NEVER_MS
from penstock.sender import Sender
from penstock.system import monotonic_ms, wall_clock_ms
from penstock.transaction import Transaction
from penstock.transport import Transport, open_transport
from penstock_core.records import Headers

EXIT_FLUSH_S = 10


class Producer(ConfiguredProducer[Transport]):
    """Sends records, in batches, from background threads. Settings: see `__init__`.

    Safe for use by several threads; order between threads is the order of their calls. Not usable across fork().
    Close it, or use it in `with`: what is left at interpreter exit is given ten seconds.
    """

    def _open(self, url: str | None, region: str | None, transport: Transport | None) -> None:
        self._client = Client(
            open_transport(url, region, transport), retry=self._call_retry, timeout_ms=self._call_timeout_ms
        )
        self._sender = Sender(self._core, self._client, acks=self._acks, max_in_flight=self._max_in_flight)
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
        if timestamp_ms is None:
            timestamp_ms = wall_clock_ms()
        if on_delivery is not None:
            check_callable("on_delivery", on_delivery)
        with self._sender.lock:
            batch = self._core.append_now(topic, value, key, headers, partition, timestamp_ms)
            if batch is None:
                batch = self._sender.drive(self._core.append(topic, value, key, headers, partition, timestamp_ms))
            index = batch.record_count - 1
            callback = on_delivery or self._on_delivery
            if callback is not None:
                batch.followers.append(CallbackFollower(callback, batch, index, timestamp_ms))
            self._sender.wake()
            return Delivery(batch, index, timestamp_ms)

    def transaction(self) -> Transaction:
        """A transaction, to be used in `with`; one at a time. Needs a `transactional_id`."""
        return Transaction(self._core, self._sender, self._transactional_state())

    def flush(self, timeout: float | None = None) -> None:
        """Send what waits without lingering, and wait until everything sent before has been delivered or has failed.

        Failures are told by the futures and callbacks, not here. `timeout` in seconds: raises TimeoutError.
        """
        check_timeout(timeout)
        if not self._flush(timeout):
            raise TimeoutError(f"not everything was delivered in {timeout} s")

    def close(self, timeout: float | None = None) -> None:
        """Flush, then end the threads. What `timeout` (seconds) leaves undelivered fails with ClosedError.

        May be called twice. Requests in flight when the time runs out are still waited for.
        """
        check_timeout(timeout)
        with self._sender.lock:
            was_closed, self._core.is_closed = self._core.is_closed, True
        if was_closed:
            return
        atexit.unregister(self._at_exit)
        self._flush(timeout)
        self._sender.stop()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _flush(self, timeout: float | None) -> bool:
        deadline_ms = NEVER_MS if timeout is None else monotonic_ms() + int(timeout * 1_000)
        with self._sender.lock:
            return self._sender.drive(self._core.flush(deadline_ms))


def _close_at_exit(reference: "weakref.ref[Producer]") -> None:
    producer = reference()
    if producer is not None:
        producer.close(EXIT_FLUSH_S)
