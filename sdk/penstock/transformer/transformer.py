# Generated from async_transformer.py by `python -m tools.unasync`: change that file.
"""Consume, transform, produce: every record takes effect exactly once (docs/reference/guarantees.md, G5)."""

from collections.abc import Callable, Sequence
from typing import Any, overload

from penstock.arguments import check
from penstock.consumer.consumer import Consumer
from penstock.model import ConsumerRecord
from penstock.model.share import ShareRecord
from penstock.producer.producer import Producer
from penstock.producer.transaction import Transaction
from penstock.share.share_consumer import ShareConsumer
from penstock.transformer.uncommitted import UncommittedRecords, check_passing
from penstock_core.errors import PenstockError

Transform = Callable[[ConsumerRecord, Transaction], object]
ShareTransform = Callable[[ShareRecord, Transaction], object]


class Transformer:
    """Hands each record of a consumer to `transform`, with the transaction for its effects.

        consumer = Consumer("payments", group_id="ledger", delivery="exactly_once")
        producer = Producer(transactional_id=f"ledger-{instance}")
        Transformer(consumer, producer, book).run()

    The records of one poll make one transaction: their sends and their offsets become visible together. If the
    transaction fails, the consumer goes back to the group's committed offsets. Effects outside of the transaction may
    happen again. Give each process a transactional id of its own, and keep it over restarts: then its zombies are
    fenced.

    With a `ShareConsumer` the transaction accepts its records. If it fails, the records are released, and come
    again after the group's backoff, to this consumer or another.

    Raises InvalidError if the consumer decrypts values, and the producer would send them in the clear.
    """

    @overload
    def __init__(self, consumer: Consumer, producer: Producer, transform: Transform) -> None: ...

    @overload
    def __init__(self, consumer: ShareConsumer, producer: Producer, transform: ShareTransform) -> None: ...

    def __init__(
        self,
        consumer: Consumer | ShareConsumer,
        producer: Producer,
        transform: Callable[[Any, Transaction], object],
    ) -> None:
        is_open = consumer.is_decrypting and not producer.is_encrypting
        how = "give the producer an encryption; to write in the clear, let `transform` call Encryption.decrypt"
        check(not is_open, f"the consumer decrypts, and the producer would send in the clear: {how}")
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
                self._transform_all(consumer, records, transaction)
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
                self._transform_all(consumer, records, transaction)
                transaction.send_offsets(ends, consumer)
        except PenstockError as error:
            check_passing(error, len(records))
            return 0
        self._uncommitted.clear()
        return len(records)

    def _transform_all(self, consumer: Any, records: Sequence[Any], transaction: Transaction) -> None:
        for record in records:
            with consumer.processing(record):
                self._transform(record, transaction)

    def _go_back(self, consumer: Consumer) -> None:
        """Go back to the group's committed offsets.

        It begins a new epoch if need be, so that no earlier commit comes after.
        """
        self._producer.init_transactions()
        for partition in self._uncommitted.partitions_in(consumer.assignment()):
            committed = consumer.committed(partition)
            consumer.seek(partition, self._uncommitted.restart_offset(partition, committed))
        self._uncommitted.clear()
