"""Consume, transform, produce in an event loop: transformer.py has the rules."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from penstock.consumer.async_consumer import AsyncConsumer
from penstock.model import ConsumerRecord
from penstock.producer.async_producer import AsyncProducer
from penstock.producer.async_transaction import AsyncTransaction
from penstock.share.async_share_consumer import AsyncShareConsumer
from penstock.share_model import ShareRecord
from penstock.transformer.transformer import UncommittedRecords, check_passing
from penstock_core.errors import PenstockError

# The transformer awaits the result if it can be awaited.
AsyncTransform = Callable[[ConsumerRecord, AsyncTransaction], object]
AsyncShareTransform = Callable[[ShareRecord, AsyncTransaction], object]


class AsyncTransformer:
    """`Transformer` with an AsyncConsumer and an AsyncProducer. `transform` may be a coroutine function.

        async def book(record, transaction):
            await transaction.send("ledger", record.value)

        await AsyncTransformer(consumer, producer, book).run()

    If you cancel it, the records of the round come again: with the next round, or to the next owner of the partitions.
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
        self._consumer = consumer
        self._producer = producer
        self._transform = transform
        self._uncommitted = UncommittedRecords()
        self._has_begun = False

    async def run(self, is_over: Callable[[], bool] = lambda: False, *, timeout_ms: int = 1_000) -> None:
        """As `Transformer.run`, awaited."""
        while not (self._consumer.is_stopped or is_over()):
            await self.run_once(timeout_ms=timeout_ms)

    def stop(self) -> None:
        """As `Transformer.stop`. It is not awaited."""
        self._consumer.stop()

    async def run_once(self, *, timeout_ms: int = 1_000) -> int:
        """As `Transformer.run_once`, awaited."""
        if not self._has_begun:
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
                made = self._transform(record, transaction)
                if inspect.isawaitable(made):
                    await made

    async def _go_back(self, consumer: AsyncConsumer) -> None:
        await self._producer.init_transactions()
        for partition in self._uncommitted.partitions_in(await consumer.assignment()):
            committed = await consumer.committed(partition)
            await consumer.seek(partition, self._uncommitted.restart_offset(partition, committed))
        self._uncommitted.clear()
