"""Cancellation, and futures of the event loop: only the asynchronous clients have these."""

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock import AsyncConsumer, AsyncProducer, PenstockError, Response, TopicPartition
from penstock.errors import ClosedError, NotConfiguredError
from penstock.model import RecordMetadata
from penstock.testing import MemoryPenstock, ThreadedTransport
from tests.sdk.http.faulty_transport import FaultyTransport, answer
from tests.support.deadlines import DEADLINE_S

PRODUCE = "/v1/produce"
METADATA = "/v1/metadata"
FETCH = "/v1/fetch"
P0 = TopicPartition("orders", 0)


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    return service.create_topic("orders", partitions=1).name


class Gate:
    """A fault that holds requests back until the test opens it."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.opened = threading.Event()

    def __call__(self, send: Callable[[], Response]) -> Response:
        self.arrived.set()
        assert self.opened.wait(DEADLINE_S)
        return send()

    async def until_arrived(self) -> None:
        assert await asyncio.to_thread(self.arrived.wait, DEADLINE_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run it in a loop of its own. No task may be left there, and no error unseen."""
    unseen: list[dict[str, Any]] = []

    async def checked() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(DEADLINE_S):
            await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    asyncio.run(checked())
    gc.collect()
    assert not unseen


def values(service: MemoryPenstock) -> list[bytes | None]:
    return [record.value for record in service.records("orders")]


# Producing.


def test_send_gives_an_awaitable_of_the_metadata(service: MemoryPenstock, orders: str) -> None:
    async def main() -> None:
        async with service.async_producer() as producer:
            sent = [await producer.send(orders, b"%d" % number, timestamp_ms=number) for number in range(100)]
            assert await sent[0] == RecordMetadata(orders, 0, 0, 0)
            assert [each.offset for each in await asyncio.gather(*sent)] == list(range(100))

    run(main)


def test_failed_delivery_is_no_unseen_error_of_the_loop_when_it_is_not_awaited(
    faulty: FaultyTransport, orders: str
) -> None:
    faulty.faults[PRODUCE] = [answer(403, b"{}")]

    async def main() -> None:
        async with AsyncProducer(transport=ThreadedTransport(faulty)) as producer:
            await producer.send(orders, b"v")

    run(main)


def test_waiting_for_memory_lets_the_loop_go_on(faulty: FaultyTransport, orders: str, gate: Gate) -> None:
    faulty.faults[PRODUCE] = [gate]

    async def main() -> None:
        async with AsyncProducer(
            transport=ThreadedTransport(faulty), buffer_bytes=1_000, batch_bytes=1_000, linger_ms=0
        ) as producer:
            await producer.send(orders, b"x" * 900)
            second = asyncio.create_task(producer.send(orders, b"y" * 900))
            await gate.until_arrived()
            assert not second.done()
            gate.opened.set()
            assert (await (await second)).offset == 1

    run(main)


def test_send_sends_nothing_when_cancelled(
    service: MemoryPenstock, faulty: FaultyTransport, orders: str, gate: Gate
) -> None:
    faulty.faults[PRODUCE] = [gate]

    async def main() -> None:
        async with AsyncProducer(
            transport=ThreadedTransport(faulty), buffer_bytes=1_000, batch_bytes=1_000, linger_ms=0
        ) as producer:
            await producer.send(orders, b"x" * 900)
            blocked = asyncio.create_task(producer.send(orders, b"y" * 900))
            await gate.until_arrived()
            blocked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await blocked
            gate.opened.set()
            await producer.send(orders, b"z")

    run(main)
    assert values(service) == [b"x" * 900, b"z"]


def test_send_cancelled_while_it_asks_for_the_topic_can_be_sent_again(
    service: MemoryPenstock, faulty: FaultyTransport, orders: str, gate: Gate
) -> None:
    faulty.faults[METADATA] = [gate]

    async def main() -> None:
        async with AsyncProducer(transport=ThreadedTransport(faulty)) as producer:
            asking = asyncio.create_task(producer.send(orders, b"lost"))
            await gate.until_arrived()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            gate.opened.set()
            await producer.send(orders, b"sent")

    run(main)
    assert values(service) == [b"sent"]


def test_cancelled_future_calls_nothing_back(service: MemoryPenstock, orders: str) -> None:
    async def main() -> None:
        async with service.async_producer(linger_ms=600_000) as producer:
            first, second = [await producer.send(orders, value) for value in (b"a", b"b")]
            first.cancel()
            await producer.flush()
            assert second.result().offset == 1

    run(main)
    assert values(service) == [b"a", b"b"]


def test_flush_can_be_cancelled_and_lingering_goes_on(service: MemoryPenstock, orders: str) -> None:
    async def main() -> None:
        faulty = FaultyTransport(service.transport)
        faulty.faults[PRODUCE] = [answer(503, b"{}")]
        async with AsyncProducer(
            transport=ThreadedTransport(faulty), retry_backoff_ms=200, linger_ms=600_000
        ) as producer:
            sent = await producer.send(orders, b"v")
            flushing = asyncio.create_task(producer.flush())
            while not faulty.count(PRODUCE):
                await asyncio.sleep(0.001)
            flushing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flushing
            assert (await sent).offset == 0
            lingering = await producer.send(orders, b"lingers")
            await producer.send(orders, b"lingers")
            assert faulty.count(PRODUCE) == 2
            assert not lingering.done()

    run(main)


def test_close_gives_up_requests_in_flight_and_leaves_no_task_when_cancelled(
    faulty: FaultyTransport, orders: str, gate: Gate
) -> None:
    faulty.faults[PRODUCE] = [gate]

    async def main() -> None:
        producer = AsyncProducer(transport=ThreadedTransport(faulty), linger_ms=0)
        in_flight = await producer.send(orders, b"v")
        await gate.until_arrived()
        queued = await producer.send(orders, b"w")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        gate.opened.set()
        assert [(type(each.exception()), each.exception().maybe_applied) for each in (in_flight, queued)] == [  # type: ignore[union-attr]  # both have one
            (ClosedError, True),
            (ClosedError, False),
        ]
        with pytest.raises(ClosedError):
            await producer.send(orders, b"x")

    run(main)


def test_undelivered_records_fail_when_the_loop_ends(faulty: FaultyTransport, orders: str, gate: Gate) -> None:
    faulty.faults[PRODUCE] = [gate]
    told: list[PenstockError | None] = []

    async def main() -> None:
        producer = AsyncProducer(
            transport=ThreadedTransport(faulty), linger_ms=0, on_delivery=lambda error, _: told.append(error)
        )
        await producer.send(orders, b"v")
        await gate.until_arrived()
        await producer.send(orders, b"w")
        threading.Timer(0.1, gate.opened.set).start()  # the loop waits for its threads

    asyncio.run(main())
    assert [type(error) for error in told] == [ClosedError, ClosedError]


def test_program_that_only_sends_does_not_keep_its_records_from_leaving(faulty: FaultyTransport, orders: str) -> None:
    async def main() -> None:
        async with AsyncProducer(transport=ThreadedTransport(faulty), linger_ms=0) as producer:
            for _ in range(50_000):  # far less than fills the memory
                await producer.send(orders, b"")
                if faulty.count(PRODUCE):
                    return
            pytest.fail("nothing was sent on the way")

    run(main)


# Consuming.


async def send(service: MemoryPenstock, count: int, topic: str = "orders") -> None:
    async with service.async_producer() as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=0)


def test_iteration_over_prefetched_records_lets_other_tasks_run(
    service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def main() -> None:
        nonlocal ticks
        await send(service, 3_000)
        async with AsyncConsumer(orders, transport=ThreadedTransport(faulty), max_poll_records=100) as consumer:
            first = await anext(consumer)
            while faulty.count(FETCH) < 2:  # the first brings all, the second waits at the end
                await asyncio.sleep(0.001)
            ticking = asyncio.create_task(tick())
            offsets = [(await anext(consumer)).offset for _ in range(2_999)]
            ticking.cancel()
            await asyncio.wait((ticking,))
        assert [first.offset, *offsets] == list(range(3_000))
        assert ticks >= 20

    run(main)


def test_cancelled_poll_has_handed_out_nothing(service: MemoryPenstock, orders: str) -> None:
    async def main() -> None:
        async with service.async_consumer(orders, fetch_wait_ms=10) as consumer:
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await consumer.poll(timeout_ms=60_000)
            await send(service, 10)
            offsets: list[int] = []
            while len(offsets) < 10:
                try:
                    async with asyncio.timeout(0.003):
                        offsets += [record.offset for record in await consumer.poll(3, timeout_ms=60_000)]
                except TimeoutError:
                    continue
            assert offsets == list(range(10))

    run(main)


def test_at_most_once_takes_records_back_when_their_commit_is_cancelled(
    service: MemoryPenstock, faulty: FaultyTransport, orders: str, gate: Gate
) -> None:
    async def main() -> None:
        await send(service, 5)
        async with AsyncConsumer(
            transport=ThreadedTransport(faulty), group_id="g", delivery="at_most_once"
        ) as consumer:
            consumer.assign([P0])
            assert await consumer.position(P0) == 0
            faulty.faults["/v1/groups/g/offsets"] = [gate]
            polling = asyncio.create_task(consumer.poll())
            await gate.until_arrived()
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            assert await consumer.position(P0) == 0
            gate.opened.set()
            assert [record.offset for record in await consumer.poll()] == [0, 1, 2, 3, 4]

    run(main)


def test_close_gives_up_the_long_poll_and_ends_a_waiting_poll(faulty: FaultyTransport, orders: str) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(orders, transport=ThreadedTransport(faulty), fetch_wait_ms=300)
        polling = asyncio.create_task(consumer.poll(timeout_ms=60_000))
        while not faulty.count(FETCH):
            await asyncio.sleep(0.001)
        await consumer.close()
        with pytest.raises(ClosedError):
            await polling
        with pytest.raises(ClosedError):
            await consumer.poll()

    run(main)


def test_async_clients_name_the_extra_to_install_when_aiohttp_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstock.http.async_connections", None)
    with pytest.raises(NotConfiguredError, match=r"penstock\[async\]"):
        AsyncProducer("http://127.0.0.1:1")
