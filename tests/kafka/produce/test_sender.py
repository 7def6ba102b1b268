"""The sender and a service that fails: answers are lost, requests are refused, batches share a fate."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest

from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock.retry import RetryPolicy
from penstock.system import monotonic_ms
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KAFKA_GATHER_BYTES_MAX, KAFKA_GATHER_BYTES_MIN, KAFKA_PRODUCE_CALLS_MAX
from penstock_core.records.codec import BatchBuilder
from penstock_core.records.record_batch import validate
from penstock_kafka.context import Context
from penstock_kafka.produce.lanes import LaneKey, Outcome, PendingBatch
from penstock_kafka.produce.sender import Sender, gather_ms
from penstock_kafka.service.service import Service
from tests.kafka.running_gateway import SETTINGS

SOON_MS = 30_000


class LosingTransport(ThreadedTransport):
    """Loses the answers to the first produce calls: the service has carried them out, or not."""

    def __init__(self, service: MemoryPenstock, losses: int, *, are_applied: bool) -> None:
        super().__init__(service.transport)
        self.losses = losses
        self.are_applied = are_applied
        self.calls = 0

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path != "/v1/produce":
            return await super().call(method, path, query, headers, body)
        self.calls += 1
        if self.calls > self.losses:
            return await super().call(method, path, query, headers, body)
        if self.are_applied:
            await super().call(method, path, query, headers, body)
        raise ConnectionFailedError("lost", maybe_applied=self.are_applied)


def _batch(
    value: bytes,
    *,
    key: bytes | None = None,
    partition: int = 0,
    producer_id: int = -1,
    sequence: int = -1,
    deadline_ms: int = SOON_MS,
) -> PendingBatch:
    builder = BatchBuilder()
    builder.append(1_000, key, value)
    epoch = -1 if producer_id < 0 else 0
    data = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return PendingBatch(
        key=LaneKey("orders", partition, producer_id),
        data=bytes(data),
        summary=validate(data),
        acks="quorum",
        deadline_ms=monotonic_ms() + deadline_ms,
        outcome=asyncio.get_running_loop().create_future(),
        have_keys=key is not None,
    )


def _run(transport: ThreadedTransport, work: Callable[[Sender], Awaitable[list[Outcome]]]) -> list[Outcome]:
    async def run() -> list[Outcome]:
        context = Context(service=Service(transport), settings=SETTINGS)
        found = await work(Sender(context, retry=RetryPolicy(backoff_ms=1, backoff_max_ms=2)))
        await context.close()
        return found

    return asyncio.run(run())


async def _sent(sender: Sender, batches: list[PendingBatch]) -> list[Outcome]:
    for each in batches:
        sender.put(each)
    return list(await asyncio.gather(*(each.outcome for each in batches)))


@pytest.fixture
def service() -> MemoryPenstock:
    service = MemoryPenstock()
    service.create_topic("orders")
    return service


def test_numbered_batch_goes_again_and_is_stored_once_when_the_answer_is_lost(service: MemoryPenstock) -> None:
    transport = LosingTransport(service, 2, are_applied=True)
    found = _run(
        transport,
        lambda sender: _sent(sender, [_batch(b"%d" % n, producer_id=7, sequence=n) for n in range(3)]),
    )
    assert found == [0, 1, 2]
    assert [each.value for each in service.records("orders")] == [b"0", b"1", b"2"]
    assert transport.calls == 3


@pytest.mark.parametrize("stored", [0, 1, 2, 3])
@pytest.mark.parametrize("losses", [0, 1, 2])
@pytest.mark.parametrize("are_applied", [True, False])
def test_repeats_and_new_batches_are_stored_once_when_both_sides_lose_connections(
    service: MemoryPenstock, stored: int, losses: int, are_applied: bool
) -> None:
    def numbered(count: int) -> list[PendingBatch]:
        return [_batch(b"%d" % n, producer_id=7, sequence=n) for n in range(count)]

    _run(ThreadedTransport(service.transport), lambda sender: _sent(sender, numbered(stored)))
    transport = LosingTransport(service, losses, are_applied=are_applied)
    assert _run(transport, lambda sender: _sent(sender, numbered(4))) == [0, 1, 2, 3]
    assert [each.value for each in service.records("orders")] == [b"0", b"1", b"2", b"3"]


def test_error_says_that_the_batch_may_be_stored_when_it_is_split_off_after_a_lost_answer(
    service: MemoryPenstock,
) -> None:
    def numbered(*sequences: int) -> list[PendingBatch]:
        return [_batch(b"%d" % n, producer_id=7, sequence=n) for n in sequences]

    _run(ThreadedTransport(service.transport), lambda sender: _sent(sender, numbered(0)))
    lossy = LosingTransport(service, 1, are_applied=True)
    found = _run(lossy, lambda sender: _sent(sender, numbered(2, 3)))  # 1 is missing
    assert all(isinstance(each, PenstockError) and each.maybe_applied for each in found)
    assert not any(each.code.is_retriable for each in found if isinstance(each, PenstockError))


def test_plain_batch_does_not_go_again_when_it_may_be_stored(service: MemoryPenstock) -> None:
    transport = LosingTransport(service, 1, are_applied=True)
    (error,) = _run(transport, lambda sender: _sent(sender, [_batch(b"v")]))
    assert isinstance(error, PenstockError)
    assert error.maybe_applied
    assert transport.calls == 1


def test_plain_batch_goes_again_when_it_was_certainly_not_stored(service: MemoryPenstock) -> None:
    transport = LosingTransport(service, 3, are_applied=False)
    assert _run(transport, lambda sender: _sent(sender, [_batch(b"v")])) == [0]


def test_sender_gives_up_when_the_request_is_over(service: MemoryPenstock) -> None:
    transport = LosingTransport(service, 10**6, are_applied=False)
    (error,) = _run(transport, lambda sender: _sent(sender, [_batch(b"v", deadline_ms=20)]))
    assert isinstance(error, PenstockError)
    assert not error.maybe_applied


def test_batch_that_is_refused_takes_no_other_with_it(service: MemoryPenstock) -> None:
    service.admin().alter_topic("orders", {"max_batch_bytes": 1_024})
    found = _run(
        ThreadedTransport(service.transport),
        lambda sender: _sent(sender, [_batch(b"a"), _batch(b"b" * 2_000), _batch(b"c")]),
    )
    assert (found[0], found[2]) == (0, 1)
    assert isinstance(found[1], PenstockError)
    assert found[1].code is ErrorCode.RECORD_TOO_LARGE
    assert [each.value for each in service.records("orders")] == [b"a", b"c"]


@pytest.mark.parametrize("is_numbered", [False, True])
def test_compacted_topic_refuses_only_the_batch_without_keys(service: MemoryPenstock, is_numbered: bool) -> None:
    service.admin().alter_topic("orders", {"cleanup_policy": "compact"})
    numbers = [{"producer_id": 7, "sequence": n} if is_numbered else {} for n in range(3)]
    keys = [b"k", None, b"k"]
    found = _run(
        ThreadedTransport(service.transport),
        lambda sender: _sent(sender, [_batch(b"v", key=key, **more) for key, more in zip(keys, numbers, strict=True)]),
    )
    codes = [each.code if isinstance(each, PenstockError) else each for each in found]
    assert codes == [0, ErrorCode.INVALID_RECORD, ErrorCode.OUT_OF_ORDER_SEQUENCE if is_numbered else 1]
    assert isinstance(found[1], PenstockError)
    assert (found[1].facts, found[1].maybe_applied) == ({"keyless": [0]}, False)
    assert {each.key for each in service.records("orders")} == {b"k"}


def test_batch_that_asks_for_its_topic_holds_up_no_other_and_goes_once_it_is_known(service: MemoryPenstock) -> None:
    class DeafTransport(ThreadedTransport):
        """Tells of no topic until it `hears`."""

        hears = False
        asked = 0

        async def call(
            self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
        ) -> Response:
            self.asked += path == "/v1/topics/orders"
            if path == "/v1/topics/orders" and not self.hears:
                raise ConnectionFailedError("lost", maybe_applied=True)
            return await super().call(method, path, query, headers, body)

    transport = DeafTransport(service.transport)

    async def work(sender: Sender) -> list[Outcome]:
        asking, other = _batch(b"v"), _batch(b"v", key=b"k", producer_id=7, sequence=0)
        service.create_topic("table")
        other = replace(other, key=LaneKey("table", 0, 7))
        for each in (asking, other):
            sender.put(each)
        found = [await other.outcome]
        assert not asking.outcome.done()
        transport.hears = True
        found.append(await asking.outcome)
        transport.asked = 0
        return [*found, *await _sent(sender, [_batch(b"v") for _ in range(3)])]

    assert _run(transport, work) == [0, 0, 1, 2, 3]
    assert transport.asked == 0  # it knows the topic for some seconds


@pytest.mark.parametrize(
    ("ready_bytes", "calls", "wait_ms"),
    [
        (KAFKA_GATHER_BYTES_MIN, 0, 0),
        (KAFKA_GATHER_BYTES_MIN - 1, 1, 0),
        (KAFKA_GATHER_BYTES_MIN, 1, 25),
        (KAFKA_GATHER_BYTES_MAX - 1, 1, 25),
        (KAFKA_GATHER_BYTES_MAX, 1, 0),
    ],
)
def test_batches_wait_for_company_only_if_large_and_while_a_call_is_under_way(
    ready_bytes: int, calls: int, wait_ms: int
) -> None:
    assert gather_ms(ready_bytes=ready_bytes, calls=calls, call_ms=100) == wait_ms
    assert gather_ms(ready_bytes=ready_bytes, calls=calls, call_ms=900) == min(2 * wait_ms, 50)


class HeldTransport(ThreadedTransport):
    """Holds produce calls until it is told to let them go, and counts the batches of each."""

    def __init__(self, service: MemoryPenstock) -> None:
        super().__init__(service.transport)
        self.may_go = asyncio.Event()
        self.sizes: list[int] = []

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == "/v1/produce":
            self.sizes.append(len(body))
            await self.may_go.wait()
        return await super().call(method, path, query, headers, body)


def test_large_batches_share_a_call_while_another_one_is_under_way() -> None:
    async def work(service: MemoryPenstock) -> None:
        transport = HeldTransport(service)
        sender = Sender(Context(service=Service(transport), settings=SETTINGS))
        large = bytes(KAFKA_GATHER_BYTES_MIN)
        transport.may_go.set()
        slow = _batch(b"tells how long a call takes")
        sender.put(slow)
        assert await slow.outcome == 0
        sender._call_ms = 10_000
        transport.may_go.clear()
        batches = [_batch(large, partition=number) for number in range(4)]
        for each in batches:
            sender.put(each)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        while len(transport.sizes) < 3:
            await asyncio.sleep(0)  # the timer ends the wait
        transport.may_go.set()
        outcomes = [await each.outcome for each in batches]
        assert outcomes == [1, 0, 0, 0]
        assert [size // len(large) for size in transport.sizes] == [0, 1, 3]

    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=4)
        asyncio.run(work(service))


def test_batches_that_wait_for_another_try_hold_up_no_other(service: MemoryPenstock) -> None:
    service.create_topic("cold")

    class HotTransport(ThreadedTransport):
        """The service refuses each batch for `orders`, until `cools`."""

        cools = False

        async def call(
            self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
        ) -> Response:
            if b'"orders"' in body and not self.cools:
                raise PenstockError(ErrorCode.THROTTLED, "over its quota", retry_after_ms=300)
            return await super().call(method, path, query, headers, body)

    transport = HotTransport(service.transport)

    async def work(sender: Sender) -> list[Outcome]:
        hot = [_batch(b"hot", producer_id=number, sequence=0) for number in range(KAFKA_PRODUCE_CALLS_MAX)]
        sent = asyncio.gather(*(each.outcome for each in hot))
        for each in hot:
            sender.put(each)
            await asyncio.sleep(0)
        cold = replace(_batch(b"cold"), key=LaneKey("cold", 0, -1))
        sender.put(cold)
        found = [await cold.outcome]
        assert not any(each.outcome.done() for each in hot)
        transport.cools = True
        return found + sorted(await sent, key=str)

    assert _run(transport, work) == [0, *range(KAFKA_PRODUCE_CALLS_MAX)]
