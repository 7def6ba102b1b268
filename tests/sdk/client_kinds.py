"""The threaded and the asynchronous clients behind one interface, so that one suite tests both."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

from penstock import AsyncConsumer, AsyncProducer, Consumer, Producer
from penstock.http.transport import Transport
from penstock.model import ConsumerRecord, RecordMetadata, TopicPartition
from penstock.testing import ThreadedTransport
from tests.support.deadlines import DEADLINE_S

T = TypeVar("T")


class ClientKind(Protocol):
    """Makes clients; `transport` is the service's if none is given."""

    def producer(self, *, transport: Transport | None = None, **settings: Any) -> Any: ...

    def consumer(self, *topics: str, transport: Transport | None = None, **settings: Any) -> Any: ...


class Threads:
    """The clients with threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def producer(self, *, transport: Transport | None = None, **settings: Any) -> Producer:
        return Producer(transport=transport or self._transport, **settings)

    def consumer(self, *topics: str, transport: Transport | None = None, **settings: Any) -> Consumer:
        return Consumer(*topics, transport=transport or self._transport, **settings)


class EventLoop:
    """The clients for asyncio, in an event loop that runs in a thread."""

    def __init__(self, transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def producer(self, *, transport: Transport | None = None, **settings: Any) -> "LoopedProducer":
        return LoopedProducer(self._loop, AsyncProducer(transport=self._threaded(transport), **settings))

    def consumer(self, *topics: str, transport: Transport | None = None, **settings: Any) -> "LoopedConsumer":
        return LoopedConsumer(self._loop, AsyncConsumer(*topics, transport=self._threaded(transport), **settings))

    def _threaded(self, transport: Transport | None) -> ThreadedTransport:
        return ThreadedTransport(transport or self._transport)


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread. At the end no task may be left in it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test-loop")
    thread.start()
    try:
        yield loop
        left = _result(loop, _tasks_left())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "a call holds the event loop"
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    assert not left


class LoopedProducer:
    """An AsyncProducer that is called from outside its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer

    def send(self, *args: Any, **kwargs: Any) -> concurrent.futures.Future[RecordMetadata]:
        delivery: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()

        async def send() -> None:
            sent = await self._producer.send(*args, **kwargs)
            sent.add_done_callback(lambda done: _resolve(delivery, done))

        _result(self._loop, send())
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        _result(self._loop, self._producer.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        _result(self._loop, self._producer.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        _result(self._loop, self._producer.__aexit__(*error))  # type: ignore[arg-type]  # as given


class LoopedConsumer:
    """An AsyncConsumer that is called from outside its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumer: AsyncConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        async def assign() -> None:
            self._consumer.assign(partitions)

        _result(self._loop, assign())

    def subscribe(self, *args: Any, **kwargs: Any) -> None:
        async def subscribe() -> None:
            self._consumer.subscribe(*args, **kwargs)

        _result(self._loop, subscribe())

    def subscription(self) -> list[str]:
        return self._consumer.subscription()

    def skipped_batches(self) -> dict[TopicPartition, int]:
        return self._consumer.skipped_batches()

    def skipped_expired(self) -> dict[TopicPartition, int]:
        return self._consumer.skipped_expired()

    def stop(self) -> None:
        self._consumer.stop()

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        _result(self._loop, self._consumer.commit(offsets))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._consumer, name)
        return lambda *args, **kwargs: _result(self._loop, method(*args, **kwargs))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        async def next_record() -> ConsumerRecord | None:
            return await anext(self._consumer, None)  # StopAsyncIteration does not cross threads

        record = _result(self._loop, next_record())
        if record is None:
            raise StopIteration
        return record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        _result(self._loop, self._consumer.__aexit__(*error))  # type: ignore[arg-type]  # as given


def _resolve(delivery: concurrent.futures.Future[RecordMetadata], done: asyncio.Future[RecordMetadata]) -> None:
    error = done.exception()
    if error is None:
        delivery.set_result(done.result())
    else:
        delivery.set_exception(error)


async def _tasks_left() -> list[str]:
    await asyncio.sleep(0)  # a task that has just ended is still listed
    return [str(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def _result(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(DEADLINE_S)
