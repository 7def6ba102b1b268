"""ShareAcknowledge, and what happens to acknowledgements when answers are lost or locks have ended."""

from collections.abc import Iterator, Mapping

import pytest

from penstock.http.http_message import HttpRequest, Response
from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock, MemoryTransport
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import stamp, walk
from penstock_kafka.share.share_calls import AcquireAnswer, acquire_answer
from penstock_service.adapters.memory.service import memory_instance
from tests.kafka.groups.desk import run
from tests.kafka.share.desk import ACCEPT, RELEASE, RENEW, ShareDesk, member_of, send
from tests.support.service import SteppedClock


class _LosesAnswers:
    """A transport whose next answers to acknowledgements are lost on their way, after the service has done its work."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.losses = 0

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        response = self._inner.call(method, path, query, headers, body)
        if self.losses and path.endswith("/acknowledge"):
            self.losses -= 1
            return Response(503, {}, b"")
        return response

    def close(self) -> None:
        """As the inner one."""
        self._inner.close()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def stepped(clock: SteppedClock) -> Iterator[MemoryPenstock]:
    """A service on a clock that tests step, with one partition of `orders`."""
    with MemoryPenstock() as service:
        service.transport = MemoryTransport(memory_instance(clock=clock))
        service.create_topic("orders")
        yield service


def test_acceptance_whose_answer_from_the_service_is_lost_counts_once(service: MemoryPenstock) -> None:
    send(service, "a", "b")
    transport = _LosesAnswers(service.transport)

    async def work() -> None:
        member = member_of(ShareDesk(service, transport), service)
        await member.join()
        assert len(await member.fetch()) == 2
        transport.losses = 2
        assert await member.acknowledge({0: [(0, 1, [ACCEPT])]}) == {0: "none"}

    run(work())
    assert service.admin().describe_share_group("workers").partitions[0].start_offset == 2


def test_repeat_over_records_of_two_locks_gets_the_answer_of_the_first(service: MemoryPenstock) -> None:
    send(service, "a", "b")

    async def work() -> None:
        member = member_of(ShareDesk(service), service)
        await member.join()
        assert len(await member.fetch(max_records=1)) == 1
        assert len(await member.fetch(max_records=1)) == 1
        assert await member.acknowledge({0: [(0, 1, [ACCEPT])]}) == {0: "none"}
        assert await member.acknowledge({0: [(0, 1, [ACCEPT])]}) == {0: "none"}

    run(work())


def test_repeat_of_an_acknowledgement_gets_the_answer_of_the_first_and_another_type_is_refused(
    service: MemoryPenstock,
) -> None:
    send(service, "a", "b")

    async def work() -> None:
        member = member_of(ShareDesk(service), service)
        await member.join()
        assert len(await member.fetch()) == 2
        assert await member.acknowledge({0: [(0, 1, [ACCEPT])]}) == {0: "none"}
        assert await member.acknowledge({0: [(0, 1, [ACCEPT])]}) == {0: "none"}
        assert await member.acknowledge({0: [(0, 0, [RELEASE])]}) == {0: "invalid_record_state"}

    run(work())


def test_late_acceptance_counts_until_another_member_has_the_record(
    stepped: MemoryPenstock, clock: SteppedClock
) -> None:
    send(stepped, "a", "b")

    async def work() -> None:
        desk = ShareDesk(stepped)
        slow, fast = member_of(desk, stepped, "slow"), member_of(desk, stepped, "fast")
        await slow.join()
        await fast.join()
        assert len(await slow.fetch(max_records=1)) == 1
        assert len(await fast.fetch(max_records=1)) == 1
        clock.time_ms += 31_000
        assert await slow.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: "none"}
        taken = await slow.fetch()
        assert [(each.offset, each.deliveries) for each in taken] == [(1, 2)]
        assert await fast.acknowledge({0: [(1, 1, [ACCEPT])]}) == {0: "invalid_record_state"}
        assert await slow.accept(taken) == {0: "none"}

    run(work())


def test_renewal_keeps_the_lock_past_its_first_end(stepped: MemoryPenstock, clock: SteppedClock) -> None:
    send(stepped, "a")

    async def work() -> None:
        desk = ShareDesk(stepped)
        one, two = member_of(desk, stepped, "one"), member_of(desk, stepped, "two")
        await one.join()
        await two.join()
        assert len(await one.fetch()) == 1
        clock.time_ms += 20_000
        assert await one.acknowledge({0: [(0, 0, [RENEW])]}, is_renew_ack=True) == {0: "none"}
        assert one.answer["acquisition_lock_timeout"] == 30_000
        clock.time_ms += 20_000
        assert await two.fetch() == []
        assert await one.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: "none"}

    run(work())


def test_gateway_that_dies_with_records_locked_lets_them_come_again_counted(
    stepped: MemoryPenstock, clock: SteppedClock
) -> None:
    send(stepped, "a")

    async def work() -> None:
        member = member_of(ShareDesk(stepped), stepped)
        await member.join()
        assert [each.deliveries for each in await member.fetch()] == [1]
        member.desk, member.epoch = ShareDesk(stepped), 0  # the first one is gone
        await member.join()
        assert await member.fetch() == []
        clock.time_ms += 31_000
        again = await member.fetch(max_wait=2_000)
        assert [each.deliveries for each in again] == [2]

    run(work())


def test_acknowledgements_begin_no_session(service: MemoryPenstock) -> None:
    async def work() -> None:
        member = member_of(ShareDesk(service), service)
        await member.join()
        assert await member.acknowledge({0: [(0, 0, [ACCEPT])]}) == {}
        assert member.answer["error_code"].name == "invalid_share_session_epoch"

    run(work())


def test_last_acknowledgement_of_a_session_gives_the_rest_back(service: MemoryPenstock) -> None:
    send(service, "a", "b")

    async def work() -> None:
        desk = ShareDesk(service)
        one, two = member_of(desk, service, "one"), member_of(desk, service, "two")
        await one.join()
        await two.join()
        assert len(await one.fetch()) == 2
        one.epoch = -1
        assert await one.acknowledge({0: [(1, 1, [ACCEPT])]}) == {0: "none"}
        assert await two.fetch() == [(0, 0, "a", 1)]

    run(work())


def test_failure_of_the_service_is_told_and_the_client_may_try_again(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_kafka.share.share_calls._RETRY_MS_MAX", 10)
    send(service, "a")
    transport = _LosesAnswers(service.transport)

    async def work() -> None:
        member = member_of(ShareDesk(service, transport), service)
        await member.join()
        assert len(await member.fetch()) == 1
        transport.losses = 1_000
        assert await member.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: "kafka_storage_error"}
        transport.losses = 0
        assert await member.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: "none"}

    run(work())


REQUEST = HttpRequest(method="POST", path="/v1/share-groups/workers/acquire", headers={}, body=b"")


def batch(base: int, count: int) -> bytes:
    data = bytearray(encode([NewRecord(0, None, b"v")] * count))
    stamp(data, base)
    return bytes(data)


def answer(*locks: tuple[str, list[list[int]], list[bytes]]) -> AcquireAnswer:
    partitions = [
        {
            "topic": "orders",
            "topic_id": "6c2186613e4773f0e2f4",
            "partition": 0,
            "lock_id": name,
            "delivery_count": 1,
            "ranges": ranges,
            "until_ms_left": 1_000,
            "length": sum(map(len, batches)),
        }
        for name, ranges, batches in locks
    ]
    header = {"lock_ms": 30_000, "partitions": partitions}
    body = frame.encode(header, [each for _, _, batches in locks for each in batches])
    return acquire_answer(REQUEST, Response(200, {}, body))


def test_batch_that_two_locks_share_is_told_once_and_in_order() -> None:
    first, second = batch(0, 5), batch(5, 5)
    found = answer(("a", [[5, 7]], [second]), ("b", [[0, 5], [7, 10]], [first, second]))
    partition = found.partitions[TopicPartition("orders", 0)]
    assert [each.base_offset for _, each in walk(partition.records())] == [0, 5]
    assert sorted((each.start, each.end) for each in partition.acquired) == [(0, 5), (5, 7), (7, 10)]
    assert [each.offsets for each in found.locks] == [(5, 6), (0, 1, 2, 3, 4, 7, 8, 9)]


@pytest.mark.parametrize(
    ("ranges", "offsets", "missing"),
    [
        ([[0, 12]], (2, 3, 4, 8, 9), (0, 1, 5, 6, 7, 10, 11)),
        ([[3, 4]], (3,), ()),
        ([[5, 8]], (), (5, 6, 7)),
        ([[0, 3], [9, 11]], (2, 9), (0, 1, 10)),
    ],
)
def test_offsets_that_no_batch_covers_are_missing(
    ranges: list[list[int]], offsets: tuple[int, ...], missing: tuple[int, ...]
) -> None:
    [lock] = answer(("a", ranges, [batch(2, 3), batch(8, 2)])).locks
    assert (lock.offsets, lock.missing) == (offsets, missing)
