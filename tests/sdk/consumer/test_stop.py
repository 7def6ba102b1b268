"""`stop()` ends a consumer from outside: it returns no more records, commits what was handed out, and leaves."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import AsyncTransformer, ClosedError, Consumer, Transformer
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until

P0 = TopicPartition("orders", 0)
RECORDS = 10


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        for number in range(RECORDS):
            producer.send("orders", b"%d" % number)


@contextmanager
def _told_again_and_again(tell: Callable[[], object]) -> Iterator[None]:
    """Calls `tell` from another thread until the block ends: at any step of what runs in it."""
    is_over = threading.Event()

    def is_told() -> bool:
        tell()
        return is_over.is_set()

    teller = threading.Thread(target=until, args=(is_told,))
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _committed(service: MemoryPenstock) -> list[int]:
    return [each.offset for each in service.admin().group_offsets("g")]


def test_iteration_ends_and_commits_the_records_handed_out_when_the_consumer_is_stopped(
    service: MemoryPenstock, clients: ClientKind
) -> None:
    seen: list[int] = []
    with clients.consumer("orders", group_id="g", fetch_wait_ms=10) as consumer:
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 3:
                consumer.stop()
        assert seen == [0, 1, 2, 3]
        assert consumer.poll() == []
    assert _committed(service) == [4]
    assert service.admin().describe_group("g").members == ()
    with pytest.raises(ClosedError):
        consumer.poll()


def test_poll_that_waits_for_ever_ends_when_another_thread_stops_the_consumer(
    service: MemoryPenstock, clients: ClientKind
) -> None:
    with clients.consumer() as consumer:
        consumer.assign([P0])
        consumer.pause(P0)  # no request is on its way whose answer would wake it
        with _told_again_and_again(consumer.stop):
            assert consumer.poll(timeout_ms=2**40) == []


def test_iteration_ends_when_a_signal_handler_stops_the_consumer(service: MemoryPenstock) -> None:
    with service.consumer() as consumer:
        consumer.assign([P0])
        consumer.pause(P0)
        before = signal.signal(signal.SIGUSR1, lambda *_: consumer.stop())
        try:
            with _told_again_and_again(lambda: os.kill(os.getpid(), signal.SIGUSR1)):
                assert list(consumer) == []
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_transformer_ends_after_its_round_when_it_is_stopped(service: MemoryPenstock) -> None:
    settings: dict[str, Any] = {"group_id": "g", "delivery": "exactly_once", "max_poll_records": 4}
    with service.consumer("orders", **settings) as consumer, service.producer(transactional_id="t") as producer:
        seen: list[int] = []

        def transform(record: ConsumerRecord, _: object) -> None:
            seen.append(record.offset)
            transformer.stop()

        transformer = Transformer(consumer, producer, transform)
        transformer.run()
    assert seen == [0, 1, 2, 3]
    assert _committed(service) == [4]


async def _transformed(service: MemoryPenstock) -> list[int]:
    settings: dict[str, Any] = {"group_id": "g", "delivery": "exactly_once", "max_poll_records": 4}
    seen: list[int] = []
    async with (
        service.async_consumer("orders", **settings) as consumer,
        service.async_producer(transactional_id="t") as producer,
    ):

        def transform(record: ConsumerRecord, _: object) -> None:
            seen.append(record.offset)
            transformer.stop()

        transformer = AsyncTransformer(consumer, producer, transform)
        await transformer.run()
    return seen


def test_async_transformer_ends_after_its_round_when_it_is_stopped(service: MemoryPenstock) -> None:
    assert asyncio.run(_transformed(service)) == [0, 1, 2, 3]
    assert _committed(service) == [4]


def test_consumer_that_is_stopped_before_it_reads_returns_nothing(service: MemoryPenstock) -> None:
    consumer = Consumer("orders", transport=service.transport)
    consumer.stop()
    with consumer:
        assert consumer.is_stopped
        assert list(consumer) == []
