"""The producer without I/O, for threads and for asyncio: partitions, waiting, and the end.

    append_now, else append -> accumulator: drain -> (a driver sends: produce_call.produce) -> complete
                                          flush waits for outcomes

The driver calls everything here under one lock; an event loop needs none. Procedures (steps.py) hold it between waits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import index
from typing import Protocol, TypeVar

from penstock.api import calls
from penstock.arguments import check_whole, checked_topic, is_whole
from penstock.errors import (
    BufferFullError,
    ClosedError,
    InvalidError,
    UnavailableError,
    UnknownPartitionError,
    as_sdk_error,
)
from penstock.http.steps import Steps, Wait
from penstock.producer.batching.accumulator import Accumulator
from penstock.producer.batching.producer_batch import ProducerBatch, TopicQueues
from penstock.producer.delays import Timer, Timers
from penstock.producer.key_hashing import KeyHashing, Salting, key_hashing, placed
from penstock.producer.settings import ProducerSettings
from penstock.producer.transaction_core import TransactionCore
from penstock.producer.transactional.transactional_state import TransactionalState
from penstock.system import NS_PER_MS, wall_clock_ns
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, SDK_TOPICS_REMEMBERED_MAX
from penstock_core.records.codec import Headers
from penstock_core.records.record_batch import NO_TIME_MS

DESCRIBE_AGAIN_MS = 1_000
_KEY_TYPES = (bytes, bytearray, memoryview)

Appended = TypeVar("Appended", bound=ProducerBatch | None, covariant=True)


class RecordSink(Protocol[Appended]):
    """A place for records: the accumulator, or a transaction."""

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
        timer: Timer | None = None,
    ) -> Appended:
        """Add a record, and return the batch that it is the last of."""


class ProducerCore:
    """An accumulator, the topics that it has met, and the calls that wait for it.

    `now_ms` reads a monotonic clock. `wall_ns` reads nanoseconds since 1970: times and due times of records are its.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        now_ms: Callable[[], int],
        choose: Callable[[int], int],
        new_nonce: Callable[[], str],
        wall_ns: Callable[[], int] = wall_clock_ns,
    ) -> None:
        self.wall_ns = wall_ns
        self.accumulator = Accumulator(settings.accumulator(), choose)
        self._join = self.accumulator.join
        self.is_closed = False
        self.timers = Timers(lambda: wall_ns() // NS_PER_MS)
        self._settings = settings
        self._now_ms = now_ms
        self._choose = choose
        transactions = settings.transactions()
        self._transactional = None if transactions is None else TransactionalState(transactions, new_nonce)
        self._topics: dict[str, TopicQueues] = {}
        self._key_hashing: KeyHashing | None = None  # found at the first key
        self._partitioner = settings.partitioner
        self._is_joining = settings.partitioner is None  # else `_put` asks the partitioner
        self._salting = None if settings.salted_keys is None else Salting(settings.salted_keys)

    def append_now(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
        timer: Timer | None = None,
    ) -> ProducerBatch | None:
        """Append a record, the last of its batch. None if the producer must wait first: call `append`.

        Nearly every record joins an open batch. This reads no clock for it: the age of the topic's description counts
        when a batch is opened. Raises ClosedError, RecordTooLargeError, and InvalidError for values of a wrong type.
        """
        try:
            queues = self._topics[topic]
        except (KeyError, TypeError):
            return None  # a new topic, or not a name: `append` describes it, or raises the error
        may_join = self._is_joining and timer is None and queues.fresh_until_ms and not self.is_closed
        if may_join and (partition is None or (partition.__class__ is int and queues.takes(partition))):
            if isinstance(value, str):
                value = value.encode()
            if isinstance(key, str):
                key = key.encode()
            try:
                if timestamp_ms.__class__ is not int:
                    timestamp_ms = index(timestamp_ms)
                chosen = partition if key is None or partition is not None else self._partition_of(queues, key)
                batch = self._join(queues, chosen, key, value, headers, timestamp_ms)
            except (PenstockError, TypeError, ValueError) as error:
                raise _refused(error, value, key, timestamp_ms) from None
            if batch is not None:
                batch.is_pinned = batch.is_pinned or partition is not None
                return batch
        now_ms = self._now_ms()
        if not _is_known(queues, partition, now_ms):
            return None
        return self._put(self.accumulator, queues, value, key, headers, partition, timestamp_ms, now_ms, timer)

    def append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
        timer: Timer | None = None,
    ) -> Steps[ProducerBatch]:
        """As `append_now`. Describes the topic if need be, and waits for memory, up to `max_block_ms`.

        Raises UnknownTopicError, UnknownPartitionError and BufferFullError too, and the errors of a call. If it raises
        or is cancelled, it has appended nothing.
        """
        queues = yield from self.find_topic(topic, partition)
        record = (queues, value, key, headers, partition, timestamp_ms)
        batch = self._put(self.accumulator, *record, self._now_ms(), timer)
        if batch is not None:
            return batch
        deadline_ms = self._now_ms() + self._settings.max_block_ms
        with self._flushing():
            while batch is None:
                if self._now_ms() >= deadline_ms:
                    raise self._full()
                yield Wait(until_ms=deadline_ms)
                batch = self._put(self.accumulator, *record, self._now_ms(), timer)
        return batch

    def find_topic(self, topic: str, partition: int | None) -> Steps[TopicQueues]:
        """The topic by a recent description, which has the partition if you name one.

        Raises ClosedError, UnknownTopicError, UnknownPartitionError, and the errors of a call.
        """
        if self.is_closed:
            raise ClosedError("send() on a closed producer")
        checked_topic(topic)
        if partition is not None:
            check_whole("partition", partition, 0)
        queues = self._topics.get(topic)
        if queues is None or queues.fresh_until_ms < self._now_ms():
            queues = yield from self._describe(topic)
        if partition is not None:
            if not queues.may_take(partition):
                queues = yield from self._describe(topic)
            if not queues.may_take(partition):
                raise UnknownPartitionError(
                    ErrorCode.UNKNOWN_PARTITION,
                    f"topic {topic!r} has no writable partition {partition}: {queues.first} to "
                    f"{queues.first + queues.partitions - 1} take records",
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
        timer: Timer | None = None,
    ) -> Steps[ProducerBatch]:
        """Add a record to a transaction, the last of its batch. If the transaction fills a request, stage it first.

        Raises the errors of `find_topic`, RecordTooLargeError, and InvalidError for values of a wrong type.
        """
        queues = yield from self.find_topic(topic, partition)
        yield from transaction.make_room()
        return self._put(transaction, queues, value, key, headers, partition, timestamp_ms, self._now_ms(), timer)

    def new_transaction(self) -> TransactionCore:
        """A transaction that has not begun. Raises InvalidError without a `transactional_id`."""
        if self._transactional is None:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST, "transaction() of a producer without transactional_id: give it one"
            )
        return TransactionCore(self._transactional, self._choose)

    def flush(self, deadline_ms: int) -> Steps[bool]:
        """Let no batch linger, and wait for all records that were appended before; False if the time ran out."""
        waiting = self.accumulator.unfinished()
        with self._flushing():
            while any(batch.outcome is None or batch.followers for batch in waiting):
                if self._now_ms() >= deadline_ms:
                    return False
                yield Wait(until_ms=deadline_ms)
        return True

    def abandon(self) -> list[ProducerBatch]:
        """Fail the batches that are in no request. No appends after this."""
        self.is_closed = True
        return self.accumulator.abandon(ClosedError("the producer was closed before the record was delivered"))

    def _describe(self, topic: str) -> Steps[TopicQueues]:
        """Learn or refresh a topic: one call, at its first use and each `metadata_max_age_ms`."""
        known = self._topics.get(topic)
        try:
            described = yield from calls.topic_metadata(topic)
        except UnavailableError:
            if known is None:
                raise
            # Go on with the old description, and ask again soon. It may have been forgotten meanwhile.
            known.fresh_until_ms = self._now_ms() + DESCRIBE_AGAIN_MS
            return self._topics.setdefault(topic, known)
        batch_bytes_max = int(described.config.get("max_batch_bytes", BATCH_BYTES_DEFAULT_MAX))
        if topic not in self._topics:
            self._forget_idle_topic()
        queues = self._topics.setdefault(topic, TopicQueues(topic))
        first = described.first_writable_partition
        queues.update(described.writable_partitions, self._settings.batch_bytes, batch_bytes_max, first)
        queues.is_compacted = described.is_compacted
        queues.has_tags = described.config.get("index_tags") is True
        queues.fresh_until_ms = self._now_ms() + self._settings.metadata_max_age_ms
        return queues

    def _forget_idle_topic(self) -> None:
        """Forget the oldest topic without batches, if there are too many topics.

        Not while an append waits for memory: it holds its topic. Two objects of one topic could reorder its records.
        """
        if len(self._topics) < SDK_TOPICS_REMEMBERED_MAX or self.accumulator.flush_waiters:
            return
        idle = next((name for name, queues in self._topics.items() if queues.is_idle), None)
        if idle is not None:
            del self._topics[idle]

    def _put(  # noqa: PLR0913 - as RecordSink.append
        self,
        batches: RecordSink[Appended],
        queues: TopicQueues,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
        now_ms: int,
        timer: Timer | None,
    ) -> Appended:
        if self.is_closed:
            raise ClosedError("send() on a closed producer")
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        is_pinned = partition is not None
        if self._partitioner is not None and partition is None and (key is None or isinstance(key, _KEY_TYPES)):
            number = placed(self._partitioner, queues.name, None if key is None else bytes(key), queues.partitions)
            partition = None if number is None else queues.first + number
        try:
            if key is None:
                _check_keyless(queues)
            elif partition is None:
                partition = self._partition_of(queues, key)
            batch = batches.append(queues, partition, key, value, headers, index(timestamp_ms), now_ms, timer)
        except (PenstockError, TypeError, ValueError) as error:
            raise _refused(error, value, key, timestamp_ms) from None
        if is_pinned and batch is not None:
            batch.is_pinned = True
        return batch

    def _partition_of(self, queues: TopicQueues, key: bytes) -> int:
        if self._key_hashing is None:
            self._key_hashing = key_hashing()
        number = self._key_hashing(key, queues.partitions)
        if self._salting is not None:
            if queues.is_compacted:
                self._salting.refuse_compacted(queues.name, key)
            number += self._salting.step(queues.name, key, queues.partitions, self._choose)
            number %= queues.partitions
        return queues.first + number

    @contextmanager
    def _flushing(self) -> Iterator[None]:
        """A caller waits for deliveries: no batch lingers meanwhile."""
        self.accumulator.flush_waiters += 1
        self.accumulator.wake_at_ms = 0
        try:
            yield
        finally:
            self.accumulator.flush_waiters -= 1

    def _full(self) -> BufferFullError:
        return BufferFullError(
            f"no room for a record after max_block_ms={self._settings.max_block_ms}: "
            f"{self.accumulator.buffered_bytes:,} bytes wait for delivery; send slower, raise buffer_bytes, or see why "
            "deliveries are slow"
        )


def _is_known(queues: TopicQueues, partition: int | None, now_ms: int) -> bool:
    """The topic's description is recent, and has the partition if the application names one."""
    if queues.fresh_until_ms < now_ms:
        return False
    return partition is None or (is_whole(partition) and queues.may_take(partition))


def _check_keyless(queues: TopicQueues) -> None:
    if queues.is_compacted:
        raise InvalidError(
            ErrorCode.INVALID_RECORD, f"topic {queues.name!r} is compacted: a record without a key would stay for ever"
        )


def _refused(error: Exception, value: object, key: object, timestamp_ms: object) -> PenstockError:
    """The SDK's error for a record that was refused. It names the argument whose type is wrong, if one is."""
    if isinstance(error, PenstockError) and error.code is not ErrorCode.INVALID_REQUEST:
        return as_sdk_error(error)
    wrong = ""
    for name, each in (("value", value), ("key", key)):
        if each is not None and not isinstance(each, bytes | bytearray | memoryview):
            wrong = f"{name}={each!r:.100}: give bytes, str or None"
    if not is_whole(timestamp_ms) or (isinstance(timestamp_ms, int) and timestamp_ms < NO_TIME_MS):
        wrong = f"timestamp_ms={timestamp_ms!r:.100}: give milliseconds since 1970, or -1 for none"
    return InvalidError(ErrorCode.INVALID_REQUEST, f"{wrong} ({error})" if wrong else str(error))
