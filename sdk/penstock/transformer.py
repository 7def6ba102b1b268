"""Consume, transform, produce: every record takes effect exactly once, whoever dies when (docs/guarantees.md, G5)."""

import logging
from collections.abc import Callable, Iterable

from penstock.consumer import Consumer
from penstock.errors import FencedError, LeaseLostError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.producer import Producer
from penstock.transaction import Transaction
from penstock_core.errors import ErrorCode, PenstockError

Transform = Callable[[ConsumerRecord, Transaction], object]

_log = logging.getLogger("penstock.transformer")


class HandedOver:
    """Where what was handed over, and is not known to count, began in each partition."""

    def __init__(self) -> None:
        self._begun: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._begun)

    def add(self, records: Iterable[ConsumerRecord]) -> dict[TopicPartition, int]:
        """These are handed over; the offsets to commit with what is made from them."""
        ends: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._begun.setdefault(partition, record.offset)
            ends[partition] = record.offset + 1
        return ends

    def among(self, assignment: Iterable[TopicPartition]) -> set[TopicPartition]:
        """The partitions to go back in, of those that the consumer has still."""
        return set(assignment) & self._begun.keys()

    def start_of(self, partition: TopicPartition, committed: int | None) -> int:
        """Where to go on in one of them."""
        return self._begun[partition] if committed is None else committed

    def count(self) -> None:
        """All of it counts, or is to be handed over again."""
        self._begun.clear()


class Transformer:
    """Hands each record of a consumer to `transform`, with the transaction that its effects are to be sent in.

        consumer = Consumer("payments", group_id="ledger", delivery="exactly_once")
        producer = Producer(transactional_id=f"ledger-{instance}")
        Transformer(consumer, producer, book).run()

    What one poll brings is one transaction: the sends and the offsets of its records become visible together. If that
    fails, the consumer goes back to what the group has committed. Effects outside of the transaction may happen
    again. Each process has a transactional id of its own, kept over restarts, so that its zombies are fenced.
    """

    def __init__(self, consumer: Consumer, producer: Producer, transform: Transform) -> None:
        self._consumer = consumer
        self._producer = producer
        self._transform = transform
        self._handed_over = HandedOver()

    def run(self, is_over: Callable[[], bool] = lambda: False, *, timeout_ms: int = 1_000) -> None:
        """Round after round, until `is_over` says so. Raises as `run_once`."""
        while not is_over():
            self.run_once(timeout_ms=timeout_ms)

    def run_once(self, *, timeout_ms: int = 1_000) -> int:
        """One poll and its transaction: how many records have taken effect, 0 if it is to be tried again.

        Raises FencedError when another process has this one's transactional id, what `transform` raises (its records
        are handed over again by the next round), and errors that no further try would heal.
        """
        if self._handed_over:
            self._go_back()
        records = self._consumer.poll(timeout_ms=timeout_ms)
        if not records:
            return 0
        ends = self._handed_over.add(records)
        try:
            with self._producer.transaction() as transaction:
                for record in records:
                    self._transform(record, transaction)
                transaction.send_offsets(ends, self._consumer)
        except PenstockError as error:
            check_passing(error, len(records))
            return 0
        self._handed_over.count()
        return len(records)

    def _go_back(self) -> None:
        """To what the group has committed: under a new epoch if need be, so that no earlier commit can come after."""
        with self._producer.transaction():
            pass
        for partition in self._handed_over.among(self._consumer.assignment()):
            committed = self._consumer.committed(partition)
            self._consumer.seek(partition, self._handed_over.start_of(partition, committed))
        self._handed_over.count()


def check_passing(error: PenstockError, records: int) -> None:
    """Raises the error of a transaction unless another try may do better; says that its records come again."""
    # Where a lease is lost, others have the partition: the next poll drops it.
    has_lost_lease = isinstance(error, LeaseLostError) or error.code is ErrorCode.LEASE_FENCED
    if not has_lost_lease and (isinstance(error, FencedError) or not error.code.is_retriable):
        raise error
    _log.warning("%d records will be transformed again: %s", records, error)
