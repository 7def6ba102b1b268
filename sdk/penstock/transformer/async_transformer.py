"""Consume, transform, produce: every record takes effect exactly once (docs/reference/guarantees.md, G5)."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from penstock.arguments import check
from penstock.consumer.async_consumer import AsyncConsumer
from penstock.model import ConsumerRecord
from penstock.model.share import ShareRecord
from penstock.producer.async_producer import AsyncProducer
from penstock.producer.async_transaction import AsyncTransaction
from penstock.share.async_share_consumer import AsyncShareConsumer
from penstock.transformer.uncommitted import UncommittedRecords, check_passing
from penstock_core.errors import PenstockError

AsyncTransform = Callable[[ConsumerRecord, AsyncTransaction], object]
AsyncShareTransform = Callable[[ShareRecord, AsyncTransaction], object]


class AsyncTransformer:
    """Hands each record of a consumer to `transform`, with the transaction for its effects.

        consumer = AsyncConsumer("payments", group_id="ledger", delivery="exactly_once")
        producer = AsyncProducer(transactional_id=f"ledger-{instance}")
        await AsyncTransformer(consumer, producer, book).run()

    The records of one poll make one transaction: their sends and their offsets become visible together. If the
    transaction fails, the consumer goes back to the group's committed offsets. Effects outside of the transaction may
    happen again. Give each process a transactional id of its own, and keep it over restarts: then its zombies are
    fenced.

    With an `AsyncShareConsumer` the transaction accepts its records. If it fails, the records are released, and come
    again after the group's backoff, to this consumer or another. `transform` may be a coroutine function. After a
    cancellation the records of the round come again: with the next round, or to the next owner of the partitions.

    Raises InvalidError if the consumer decrypts values, and the producer would send them in the clear.
    """

    @overload
    def __init__(self, consumer: AsyncConsumer, producer: AsyncProducer, transform: AsyncTransform) -> None: ...

    @overload
    def __init__(
        self, consumer: AsyncShareConsumer, producer: AsyncProducer, transform: AsyncShareTransform
    ) -> None: ...

    def __init__(
        self,
        consumer: AsyncConsumer | AsyncShareConsumer,
        producer: AsyncProducer,
        transform: Callable[[Any, AsyncTransaction], object],
    ) -> None:
        is_open = consumer.is_decrypting and not producer.is_encrypting
        how = "give the producer an encryption; to write in the clear, let `transform` call Encryption.decrypt"
        check(not is_open, f"the consumer decrypts, and the producer would send in the clear: {how}")
        self._consumer = consumer
        self._producer = producer
        self._transform = transform
        self._uncommitted = UncommittedRecords()
        self._has_begun = False

    async def run(self, is_over: Callable[[], bool] = lambda: False, *, timeout_ms: int = 1_000) -> None:
        """Round after round, until `stop()` is called or `is_over` returns true. Raises as `run_once`."""
        while not (self._consumer.is_stopped or is_over()):
            await self.run_once(timeout_ms=timeout_ms)

    def stop(self) -> None:
        """End `run` after the round under way. It stops the consumer, which you then close.

        Call it from a signal handler or from another thread: `signal.signal(signal.SIGTERM, lambda *_: worker.stop())`.
        """
        self._consumer.stop()

    async def run_once(self, *, timeout_ms: int = 1_000) -> int:
        """One poll and its transaction. Returns how many records have taken effect, 0 if it must be tried again.

        Raises FencedError when another process has this transactional id, and errors that no further try heals. Raises
        what `transform` raises; the next round hands over the same records again.
        """
        if not self._has_begun:
            # Before a position is read: no commit of an earlier instance may come after that.
            try:
                await self._producer.init_transactions()
            except PenstockError as error:
                check_passing(error, 0)
                return 0
            self._has_begun = True
        if isinstance(self._consumer, AsyncShareConsumer):
            return await self._share_round(self._consumer, timeout_ms)
        return await self._round(self._consumer, timeout_ms)

    async def _share_round(self, consumer: AsyncShareConsumer, timeout_ms: int) -> int:
        records = await consumer.poll(timeout_ms=timeout_ms)
        if not records:
            return 0
        try:
            async with self._producer.transaction() as transaction:
                await self._transform_all(consumer, records, transaction)
                transaction.accept(records, consumer)
        except BaseException as error:
            for record in filter(consumer.is_held, records):
                consumer.release(record)
            if not isinstance(error, PenstockError):
                raise
            check_passing(error, len(records))
            return 0
        return len(records)

    async def _round(self, consumer: AsyncConsumer, timeout_ms: int) -> int:
        if self._uncommitted:
            await self._go_back(consumer)
        records = await consumer.poll(timeout_ms=timeout_ms)
        if not records:
            return 0
        ends = self._uncommitted.add(records)
        try:
            async with self._producer.transaction() as transaction:
                await self._transform_all(consumer, records, transaction)
                transaction.send_offsets(ends, consumer)
        except PenstockError as error:
            check_passing(error, len(records))
            return 0
        self._uncommitted.clear()
        return len(records)

    async def _transform_all(self, consumer: Any, records: Sequence[Any], transaction: AsyncTransaction) -> None:
        for record in records:
            with consumer.processing(record):
                made = self._transform(record, transaction)  # sync: self._transform(record, transaction)
                if inspect.isawaitable(made):  # sync:
                    await made

    async def _go_back(self, consumer: AsyncConsumer) -> None:
        """Go back to the group's committed offsets.

        It begins a new epoch if need be, so that no earlier commit comes after.
        """
        await self._producer.init_transactions()
        for partition in self._uncommitted.partitions_in(await consumer.assignment()):
            committed = await consumer.committed(partition)
            await consumer.seek(partition, self._uncommitted.restart_offset(partition, committed))
        self._uncommitted.clear()
