"""Consume, transform, produce in an event loop: transformer.py has the rules."""

import inspect
from collections.abc import Callable

from penstock.async_consumer import AsyncConsumer
from penstock.async_producer import AsyncProducer
from penstock.async_transaction import AsyncTransaction
from penstock.model import ConsumerRecord
from penstock.transformer import HandedOver, check_passing
from penstock_core.errors import PenstockError

# What it returns is awaited, if it can be.
AsyncTransform = Callable[[ConsumerRecord, AsyncTransaction], object]


class AsyncTransformer:
    """As Transformer, with an AsyncConsumer and an AsyncProducer; `transform` may be a coroutine function.

        async def book(record, transaction):
            await transaction.send("ledger", record.value)

        await AsyncTransformer(consumer, producer, book).run()

    Where it is cancelled, the records of the round come again with the next, or to whoever has the partitions then.
    """

    def __init__(self, consumer: AsyncConsumer, producer: AsyncProducer, transform: AsyncTransform) -> None:
        self._consumer = consumer
        self._producer = producer
        self._transform = transform
        self._handed_over = HandedOver()

    async def run(self, is_over: Callable[[], bool] = lambda: False, *, timeout_ms: int = 1_000) -> None:
        """Round after round, until `is_over` says so. Raises as `run_once`."""
        while not is_over():
            await self.run_once(timeout_ms=timeout_ms)

    async def run_once(self, *, timeout_ms: int = 1_000) -> int:
        """As Transformer.run_once: how many records have taken effect, 0 if it is to be tried again."""
        if self._handed_over:
            await self._go_back()
        records = await self._consumer.poll(timeout_ms=timeout_ms)
        if not records:
            return 0
        ends = self._handed_over.add(records)
        try:
            async with self._producer.transaction() as transaction:
                for record in records:
                    made = self._transform(record, transaction)
                    if inspect.isawaitable(made):
                        await made
                transaction.send_offsets(ends, self._consumer)
        except PenstockError as error:
            check_passing(error, len(records))
            return 0
        self._handed_over.count()
        return len(records)

    async def _go_back(self) -> None:
        async with self._producer.transaction():
            pass
        for partition in self._handed_over.among(await self._consumer.assignment()):
            committed = await self._consumer.committed(partition)
            await self._consumer.seek(partition, self._handed_over.start_of(partition, committed))
        self._handed_over.count()
