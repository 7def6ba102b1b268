"""AsyncTransformer: each record takes effect once, even if any step in between fails."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock import AsyncConsumer, AsyncProducer, AsyncTransaction, AsyncTransformer, FencedError
from penstock.model import ConsumerRecord
from penstock.testing import MemoryPenstock, ThreadedTransport
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer, lost_request

TRANSACT, BEGIN = "/v1/transactions", "/v1/producers"
MANY = 10_000
RECORDS = 30
Body = Callable[[AsyncConsumer, AsyncProducer], Awaitable[None]]


@pytest.fixture
def faulty(service: MemoryPenstock) -> FaultyTransport:
    service.create_topic("payments", partitions=2)
    service.create_topic("ledger")
    with service.producer() as producer:
        for number in range(RECORDS):
            producer.send("payments", b"%d" % number, partition=number % 2)
    return FaultyTransport(service.transport)


async def book(record: ConsumerRecord, transaction: AsyncTransaction) -> None:
    await transaction.send("ledger", record.value)


def _booked(service: MemoryPenstock) -> list[int]:
    return sorted(int(record.value or b"") for record in service.records("ledger"))


def _producer(faulty: FaultyTransport) -> AsyncProducer:
    return AsyncProducer(
        transactional_id="ledger-1", transport=ThreadedTransport(faulty), retry_backoff_ms=1, max_block_ms=1
    )


def _run(faulty: FaultyTransport, body: Body) -> None:
    async def run() -> None:
        transport = ThreadedTransport(faulty)
        settings = {"group_id": "ledger", "delivery": "exactly_once", "max_poll_records": 4, "fetch_wait_ms": 10}
        consumer = AsyncConsumer("payments", transport=transport, **settings)  # type: ignore[arg-type]  # of several types
        async with _producer(faulty) as producer, consumer:
            await body(consumer, producer)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, lost_request, lost_answer])
@pytest.mark.parametrize("epochs_fail", [False, True])
def test_every_record_takes_effect_once(
    service: MemoryPenstock, faulty: FaultyTransport, fault: object, epochs_fail: bool
) -> None:
    async def body(consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        transformer = AsyncTransformer(consumer, producer, book)
        while not await transformer.run_once(timeout_ms=50):
            pass
        if fault is not None:
            faulty.faults[TRANSACT] = [fault] * MANY  # type: ignore[list-item]  # one of two faults
            faulty.faults[BEGIN] = [lost_request for _ in range(MANY * epochs_fail)]
            await transformer.run_once(timeout_ms=50)
            faulty.faults.clear()
        await transformer.run(lambda: len(_booked(service)) >= RECORDS, timeout_ms=50)

    _run(faulty, body)
    assert _booked(service) == list(range(RECORDS))


@pytest.mark.slow
def test_records_of_a_round_that_was_cancelled_or_raised_come_again(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    failures = iter([asyncio.CancelledError, ZeroDivisionError])

    async def fragile(record: ConsumerRecord, transaction: AsyncTransaction) -> None:
        await book(record, transaction)
        if failure := next(failures, None):
            raise failure

    async def body(consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        transformer = AsyncTransformer(consumer, producer, fragile)
        for failure in (asyncio.CancelledError, ZeroDivisionError):
            with pytest.raises(failure):
                await transformer.run(timeout_ms=50)
        await transformer.run(lambda: len(_booked(service)) >= RECORDS, timeout_ms=50)

    _run(faulty, body)
    assert _booked(service) == list(range(RECORDS))


def test_second_process_with_the_same_id_fences_the_first(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    async def body(consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        transformer = AsyncTransformer(consumer, producer, lambda record, transaction: transaction.send("ledger", b"1"))
        while not await transformer.run_once(timeout_ms=50):
            pass
        async with _producer(faulty) as new, new.transaction():
            pass
        with pytest.raises(FencedError):
            await transformer.run(timeout_ms=50)

    _run(faulty, body)
