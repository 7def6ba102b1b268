"""Penstock in memory, for the tests of programs that use it: the service's own code on in-memory storage.

Nothing is mocked: requests are encoded, handled, stored and answered as in AWS, without network, files or account.

    import pytest
    from penstock.testing import MemoryPenstock

    @pytest.fixture
    def penstock():
        with MemoryPenstock() as service:
            service.create_topic("orders", partitions=3)
            yield service

    def test_order_is_announced(penstock):
        with penstock.producer() as producer:
            announce(producer, order)                       # the code under test
        records = penstock.records("orders")
        assert [record.value for record in records] == [b"..."]

`async_producer` and `async_consumer` are the same for asyncio.

Needs the extra `penstock[testing]` (docs/adr/0002). The only module of the SDK that imports the service.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from handlers.router import dispatch
from penstock.admin import Admin
from penstock.async_admin import AsyncAdmin
from penstock.async_consumer import AsyncConsumer
from penstock.async_producer import AsyncProducer
from penstock.consumer import Consumer
from penstock.model import ConsumerRecord, Topic, TopicPartition
from penstock.producer import Producer
from penstock.transport import Response, Transport
from penstock_broker.adapters.memory import memory_broker
from penstock_broker.broker import Broker


class MemoryTransport:
    """A Transport to a service in this process. Signatures are not made and not checked."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        return Response(*dispatch(method, path, query, headers, body, self._broker))

    def close(self) -> None:
        pass


class ThreadedTransport:
    """An AsyncTransport: calls a Transport in the event loop's threads."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        return await asyncio.to_thread(self._inner.call, method, path, query, headers, body)

    async def close(self) -> None:
        self._inner.close()


class MemoryPenstock:
    """A service of its own, empty at first, and clients of it. Closing it closes those that have threads."""

    def __init__(self) -> None:
        self.transport = MemoryTransport(memory_broker())
        self._closers: list[Callable[[], None]] = []

    def producer(self, **settings: Any) -> Producer:
        """A Producer of this service; settings are Producer's."""
        producer = Producer(transport=self.transport, **settings)
        self._closers.append(producer.close)
        return producer

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """A Consumer of this service; settings are Consumer's."""
        consumer = Consumer(*topics, transport=self.transport, **settings)
        self._closers.append(consumer.close)
        return consumer

    def async_producer(self, **settings: Any) -> AsyncProducer:
        """An AsyncProducer of this service, for `async with`: it is not closed here."""
        return AsyncProducer(transport=ThreadedTransport(self.transport), **settings)

    def async_consumer(self, *topics: str, **settings: Any) -> AsyncConsumer:
        """An AsyncConsumer of this service, for `async with`: it is not closed here."""
        return AsyncConsumer(*topics, transport=ThreadedTransport(self.transport), **settings)

    def admin(self) -> Admin:
        """An Admin of this service."""
        return Admin(transport=self.transport)

    def async_admin(self) -> AsyncAdmin:
        """An AsyncAdmin of this service."""
        return AsyncAdmin(transport=ThreadedTransport(self.transport))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None) -> Topic:
        """As Admin.create_topic."""
        return self.admin().create_topic(name, partitions, config)

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Everything in a topic now, partition by partition, in order."""
        ends = self._offsets(topic, "latest")
        starts = self._offsets(topic, "earliest")
        wanted = [each for each in ends if starts[each] < ends[each]]
        records: list[ConsumerRecord] = []
        with Consumer(transport=self.transport) as consumer:
            consumer.assign(wanted)
            while any(consumer.position(each) < ends[each] for each in wanted):
                records += consumer.poll()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def close(self) -> None:
        """Close the producers and consumers made here."""
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _offsets(self, topic: str, timestamp: str) -> dict[TopicPartition, int]:
        found = self.admin().list_offsets(topic, timestamp)
        return {TopicPartition(topic, partition): offset or 0 for partition, offset in found.items()}
