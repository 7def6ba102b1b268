"""Consume, transform, produce: every record takes effect exactly once (docs/reference/guarantees.md, G5)."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, overload

from penstock.consumer.consumer import Consumer
from penstock.errors import FencedError, LeaseLostError, LockLostError, TopicReplacedError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.producer.producer import Producer
from penstock.producer.transaction import Transaction
from penstock.share.share_consumer import ShareConsumer
from penstock.share_model import ShareRecord
from penstock_core.errors import ErrorCode, PenstockError

Transform = Callable[[ConsumerRecord, Transaction], object]
ShareTransform = Callable[[ShareRecord, Transaction], object]

_log = logging.getLogger("penstock.transformer")


class UncommittedRecords:
    """The first offset, by partition, of the records that were handed to `transform` and may not count yet."""

    def __init__(self) -> None:
        self._begun: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._begun)

    def add(self, records: Iterable[ConsumerRecord]) -> dict[TopicPartition, int]:
        """Note these records. Returns the offsets to commit with their effects."""
        ends: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._begun.setdefault(partition, record.offset)
            ends[partition] = record.offset + 1
        return ends

    def partitions_in(self, assignment: Iterable[TopicPartition]) -> set[TopicPartition]:
        """The partitions to go back in, of those that the consumer still has."""
        return set(assignment) & self._begun.keys()

    def restart_offset(self, partition: TopicPartition, committed: int | None) -> int:
        """The offset to go on at in one of them."""
        return self._begun[partition] if committed is None else committed

    def clear(self) -> None:
        """All of them count, or will be handed over again."""
        self._begun.clear()


class Transformer:
    """Hands each record of a consumer to `transform`, with the transaction for its effects.

        consumer = Consumer("payments", group_id="ledger", delivery="exactly_once")
        producer = Producer(transactional_id=f"ledger-{instance}")
        Transformer(consumer, producer, book).run()

    The records of one poll make one transaction: their sends and their offsets become visible together. If the
    transaction fails, the consumer goes back to the group's committed offsets. Effects outside of the transaction may
    happen again. Give each process a transactional id of its own, and keep it over restarts: then its zombies are
    fenced.

    With a `ShareConsumer` the transaction accepts its records. If it fails, the records are released, and come again
    after the group's backoff, to this consumer or another.
    """

    @overload
    def __init__(self, consumer: Consumer, producer: Producer, transform: Transform) -> None: ...

    @overload
    def __init__(self, consumer: ShareConsumer, producer: Producer, transform: ShareTransform) -> None: ...

    def __init__(
        self, consumer: Consumer | ShareConsumer, producer: Producer, transform: Callable[[Any, Transaction], object]
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._transform = transform
        self._uncommitted = UncommittedRecords()
        self._has_begun = False

    def run(self, is_over: Callable[[], bool] = lambda: False, *, timeout_ms: int = 1_000) -> None:
        """Round after round, until `stop()` is called or `is_over` returns true. Raises as `run_once`."""
        while not (self._consumer.is_stopped or is_over()):
            self.run_once(timeout_ms=timeout_ms)

    def stop(self) -> None:
        """End `run` after the round under way. It stops the consumer, which you then close.

        Call it from a signal handler or from another thread: `signal.signal(signal.SIGTERM, lambda *_: worker.stop())`.
        """
        self._consumer.stop()

    def run_once(self, *, timeout_ms: int = 1_000) -> int:
        """One poll and its transaction. Returns how many records have taken effect, 0 if it must be tried again.

        Raises FencedError when another process has this transactional id, and errors that no further try heals. Raises
        what `transform` raises; the next round hands over the same records again.
        """
        if not self._has_begun:
            # Before a position is read: no commit of an earlier instance may come after that.
            try:
                self._producer.init_transactions()
            except PenstockError as error:
                check_passing(error, 0)
                return 0
            self._has_begun = True
        if isinstance(self._consumer, ShareConsumer):
            return self._share_round(self._consumer, timeout_ms)
        return self._round(self._consumer, timeout_ms)

    def _share_round(self, consumer: ShareConsumer, timeout_ms: int) -> int:
        records = consumer.poll(timeout_ms=timeout_ms)
        if not records:
            return 0
        try:
            with self._producer.transaction() as transaction:
                for record in records:
                    with consumer.processing(record):
                        self._transform(record, transaction)
                transaction.accept(records, consumer)
        except BaseException as error:
            for record in filter(consumer.is_held, records):
                consumer.release(record)
            if not isinstance(error, PenstockError):
                raise
            check_passing(error, len(records))
            return 0
        return len(records)

    def _round(self, consumer: Consumer, timeout_ms: int) -> int:
        if self._uncommitted:
            self._go_back(consumer)
        records = consumer.poll(timeout_ms=timeout_ms)
        if not records:
            return 0
        ends = self._uncommitted.add(records)
        try:
            with self._producer.transaction() as transaction:
                for record in records:
                    with consumer.processing(record):
                        self._transform(record, transaction)
                transaction.send_offsets(ends, consumer)
        except PenstockError as error:
            check_passing(error, len(records))
            return 0
        self._uncommitted.clear()
        return len(records)

    def _go_back(self, consumer: Consumer) -> None:
        """Go back to the group's committed offsets.

        It begins a new epoch if need be, so that no earlier commit comes after.
        """
        self._producer.init_transactions()
        for partition in self._uncommitted.partitions_in(consumer.assignment()):
            committed = consumer.committed(partition)
            consumer.seek(partition, self._uncommitted.restart_offset(partition, committed))
        self._uncommitted.clear()


def check_passing(error: PenstockError, records: int) -> None:
    """Raise the error of a transaction unless another try may do better; log that its records come again."""
    # After the loss of a lease or a lock another consumer has the records, and a topic that was made anew starts anew:
    # the next poll drops the records. After PARTITION_CLOSED the producer asks which partitions take records now.
    may_pass = isinstance(error, LeaseLostError | LockLostError | TopicReplacedError)
    may_pass |= error.code in (ErrorCode.LEASE_FENCED, ErrorCode.PARTITION_CLOSED)
    if not may_pass and (isinstance(error, FencedError) or not error.code.is_retriable):
        raise error
    _log.warning("%d records will be transformed again: %s", records, error)
