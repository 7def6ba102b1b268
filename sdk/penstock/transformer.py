"""Consume, transform, produce: every record takes effect exactly once, whoever dies when (docs/guarantees.md, G5)."""

import logging
from collections.abc import Callable

from penstock.consumer import Consumer
from penstock.errors import FencedError, LeaseLostError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.producer import Producer
from penstock.transaction import Transaction
from penstock_core.errors import ErrorCode, PenstockError

Transform = Callable[[ConsumerRecord, Transaction], object]

_log = logging.getLogger("penstock.transformer")


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
        self._begun: dict[TopicPartition, int] = {}  # where what was handed over and is not known to count began

    def run(self, is_over: Callable[[], bool] = lambda: False, *, timeout_ms: int = 1_000) -> None:
        """Round after round, until `is_over` says so. Raises as `run_once`."""
        while not is_over():
            self.run_once(timeout_ms=timeout_ms)

    def run_once(self, *, timeout_ms: int = 1_000) -> int:
        """One poll and its transaction: how many records have taken effect, 0 if it is to be tried again.

        Raises FencedError when another process has this one's transactional id, what `transform` raises (its records
        are handed over again by the next round), and errors that no further try would heal.
        """
        if self._begun:
            self._go_back()
        records = self._consumer.poll(timeout_ms=timeout_ms)
        if not records:
            return 0
        ends: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._begun.setdefault(partition, record.offset)
            ends[partition] = record.offset + 1
        try:
            with self._producer.transaction() as transaction:
                for record in records:
                    self._transform(record, transaction)
                transaction.send_offsets(ends, self._consumer)
        except PenstockError as error:
            if not _is_passing(error):
                raise
            _log.warning("%d records will be transformed again: %s", len(records), error)
            return 0
        self._begun.clear()
        return len(records)

    def _go_back(self) -> None:
        """To what the group has committed: under a new epoch if need be, so that no earlier commit can come after."""
        with self._producer.transaction():
            pass
        for partition in set(self._consumer.assignment()) & self._begun.keys():
            committed = self._consumer.committed(partition)
            self._consumer.seek(partition, self._begun[partition] if committed is None else committed)
        self._begun.clear()


def _is_passing(error: PenstockError) -> bool:
    if isinstance(error, LeaseLostError) or error.code is ErrorCode.LEASE_FENCED:
        return True  # others have the partition: the next poll drops it
    return not isinstance(error, FencedError) and error.code.is_retriable
