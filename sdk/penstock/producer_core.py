"""What a producer does, without I/O, for threads and for asyncio: which partition, what to wait for, when it is over.

    append_now, else append -> accumulator: drain -> (a driver sends: record_calls.produce) -> complete
                                          flush waits for outcomes

The driver calls everything here under one lock (an event loop needs none); procedures (steps.py) hold it between waits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from operator import index
from typing import Protocol, TypeVar

from penstock import calls
from penstock.accumulator import Accumulator, AccumulatorSettings
from penstock.arguments import check_whole, is_whole
from penstock.errors import (
    BufferFullError,
    ClosedError,
    InvalidError,
    UnavailableError,
    UnknownPartitionError,
    as_sdk_error,
)
from penstock.producer_batch import ProducerBatch, TopicQueues
from penstock.steps import Steps, Wait
from penstock.transaction_core import TransactionCore
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX
from penstock_core.partitioner import partition_for_key
from penstock_core.records import Headers

KEYS_REMEMBERED = 100_000  # hashing a key in Python takes longer than all else in send()
DESCRIBE_AGAIN_MS = 1_000

Appended = TypeVar("Appended", covariant=True)
_partition_for_key = lru_cache(maxsize=KEYS_REMEMBERED)(partition_for_key)


class TakesRecords(Protocol[Appended]):
    """What holds batches: the accumulator, or a transaction."""

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
    ) -> Appended:
        """Add a record; the batch whose last it is then."""


class ProducerCore:
    """An accumulator, the topics it has met, and who waits for it. `now_ms` reads a monotonic clock."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        *,
        max_block_ms: int,
        metadata_max_age_ms: int,
        now_ms: Callable[[], int],
        choose: Callable[[int], int],
    ) -> None:
        self.accumulator = Accumulator(settings, choose)
        self.is_closed = False
        self._batch_bytes = settings.batch_bytes
        self._max_block_ms = max_block_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._now_ms = now_ms
        self._topics: dict[str, TopicQueues] = {}

    def append_now(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
    ) -> ProducerBatch | None:
        """Append a record, the batch's last (`record_count` - 1); None if something is to be waited for: `append`.

        Raises ClosedError, RecordTooLargeError, and InvalidError for values of a wrong type.
        """
        try:
            queues = self._topics.get(topic)
        except TypeError:
            return None  # no name, as `append` says
        now_ms = self._now_ms()
        if queues is None or queues.fresh_until_ms < now_ms:
            return None
        if partition is not None and not (is_whole(partition) and 0 <= partition < queues.partitions):
            return None
        return self._put(self.accumulator, queues, value, key, headers, partition, timestamp_ms, now_ms)

    def append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
    ) -> Steps[ProducerBatch]:
        """As `append_now`; describes the topic if need be, and waits for memory, up to `max_block_ms`.

        Raises UnknownTopicError, UnknownPartitionError and BufferFullError too, and what a call may raise. Nothing was
        appended then, nor if it is cancelled.
        """
        queues = yield from self.find_topic(topic, partition)
        record = (queues, value, key, headers, partition, timestamp_ms)
        batch = self._put(self.accumulator, *record, self._now_ms())
        if batch is not None:
            return batch
        deadline_ms = self._now_ms() + self._max_block_ms
        with self._hurry():
            while batch is None:
                if self._now_ms() >= deadline_ms:
                    raise self._full()
                yield Wait(until_ms=deadline_ms)
                batch = self._put(self.accumulator, *record, self._now_ms())
        return batch

    def find_topic(self, topic: str, partition: int | None) -> Steps[TopicQueues]:
        """The topic as it was described lately, and as having the partition if one is named.

        Raises ClosedError, UnknownTopicError, UnknownPartitionError, and what a call may raise.
        """
        if self.is_closed:
            raise ClosedError("send() on a closed producer")
        calls.checked_topic(topic)
        if partition is not None:
            check_whole("partition", partition, 0)
        queues = self._topics.get(topic)
        if queues is None or queues.fresh_until_ms < self._now_ms():
            queues = yield from self._describe(topic)
        if partition is not None:
            if partition >= queues.partitions:
                queues = yield from self._describe(topic)
            if not 0 <= partition < queues.partitions:
                raise UnknownPartitionError(
                    ErrorCode.UNKNOWN_PARTITION,
                    f"topic {topic!r} has no partition {partition}: it has 0 to {queues.partitions - 1}",
                )
        return queues

    def append_to(
        self,
        transaction: TransactionCore,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
    ) -> Steps[ProducerBatch]:
        """Add a record to a transaction, the batch's last; stages what it holds when that fills a request.

        Raises what `find_topic` does, RecordTooLargeError, and InvalidError for values of a wrong type.
        """
        queues = yield from self.find_topic(topic, partition)
        if transaction.is_full:
            yield from transaction.stage()
        return self._put(transaction, queues, value, key, headers, partition, timestamp_ms, self._now_ms())

    def flush(self, deadline_ms: int) -> Steps[bool]:
        """Let nothing linger, and wait for all that was appended before; False if the time ran out."""
        waiting = self.accumulator.unfinished()
        with self._hurry():
            while any(batch.outcome is None for batch in waiting):
                if self._now_ms() >= deadline_ms:
                    return False
                yield Wait(until_ms=deadline_ms)
        return True

    def abandon(self) -> list[ProducerBatch]:
        """Fail what is in no request; no appends after this."""
        self.is_closed = True
        return self.accumulator.abandon(ClosedError("the producer was closed before the record was delivered"))

    def _describe(self, topic: str) -> Steps[TopicQueues]:
        """Learn or refresh a topic: one call, when it is first used and each `metadata_max_age_ms`."""
        known = self._topics.get(topic)
        try:
            described = yield from calls.topic_metadata(topic)
        except UnavailableError:
            if known is None:
                raise
            # The old description does; ask again soon.
            known.fresh_until_ms = self._now_ms() + DESCRIBE_AGAIN_MS
            return known
        batch_bytes_max = int(described.config.get("max_batch_bytes", BATCH_BYTES_DEFAULT_MAX))
        queues = self._topics.setdefault(topic, TopicQueues(topic))
        queues.update(described.partitions, self._batch_bytes, batch_bytes_max)
        queues.fresh_until_ms = self._now_ms() + self._metadata_max_age_ms
        return queues

    def _put(
        self,
        batches: TakesRecords[Appended],
        queues: TopicQueues,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
        now_ms: int,
    ) -> Appended:
        if self.is_closed:
            raise ClosedError("send() on a closed producer")
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        try:
            if partition is None and key is not None:
                partition = _partition_for_key(key, queues.partitions)
            return batches.append(queues, partition, key, value, headers, index(timestamp_ms), now_ms)
        except (PenstockError, TypeError, ValueError) as error:
            raise _refused(error, value, key, headers, timestamp_ms) from None

    @contextmanager
    def _hurry(self) -> Iterator[None]:
        """Somebody waits for deliveries: nothing lingers meanwhile."""
        self.accumulator.hurry += 1
        self.accumulator.wake_at_ms = 0
        try:
            yield
        finally:
            self.accumulator.hurry -= 1

    def _full(self) -> BufferFullError:
        return BufferFullError(
            f"no room for a record after max_block_ms={self._max_block_ms}: {self.accumulator.buffered_bytes:,} bytes "
            "wait for delivery; send slower, raise buffer_bytes, or see why deliveries are slow"
        )


def _refused(error: Exception, value: object, key: object, headers: object, timestamp_ms: object) -> PenstockError:
    """The SDK's error for what a record was refused with: the argument that is wrong, if it is its type."""
    if isinstance(error, PenstockError) and error.code is not ErrorCode.INVALID_REQUEST:
        return as_sdk_error(error)
    wrong = f"headers={headers!r:.100}: give (str, bytes or None) pairs" if headers else ""
    for name, each in (("value", value), ("key", key)):
        if each is not None and not isinstance(each, bytes | bytearray | memoryview):
            wrong = f"{name}={each!r:.100}: give bytes, str or None"
    if not is_whole(timestamp_ms):
        wrong = f"timestamp_ms={timestamp_ms!r:.100}: give milliseconds since 1970"
    return InvalidError(ErrorCode.INVALID_REQUEST, f"{wrong} ({error})" if wrong else str(error))
