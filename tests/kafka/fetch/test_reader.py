"""One fetch for all clients that read the same records, and batches for offsets that hold no record."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from penstock.http.http_message import Response
from penstock.system import monotonic_ms
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.limits import KAFKA_SESSIONS_MAX, SDK_SHARED_MS
from penstock_core.records.record_batch import crc_is_valid, walk
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Peer
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.fetch.reader import FetchWish, Reader, Reading, empty_batch
from penstock_kafka.fetch.sessions import PartitionName, Sessions, Wanted
from penstock_kafka.fetch.tails import Tails
from penstock_kafka.service.service import Service
from tests.kafka.running_gateway import SETTINGS

NAME = PartitionName("orders", 0)


class _Held:
    """A transport that holds each fetch back until `go` is set, and fails the first `failures` of them."""

    def __init__(self, service: MemoryPenstock, failures: int = 0) -> None:
        self._inner = ThreadedTransport(service.transport)
        self._failures = failures
        self.go = asyncio.Event()
        self.fetches = 0

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == "/v1/fetch":
            self.fetches += 1
            number = self.fetches
            await self.go.wait()
            if number <= self._failures:
                return Response(403, {}, b'{"error":{"code":"NOT_AUTHORIZED","message":"no"}}')
        return await self._inner.call(method, path, query, headers, body)

    async def close(self) -> None:
        await self._inner.close()


def _wish(number: int, offset: int = 0, bytes_max: int = 1_000_000) -> FetchWish:
    wanted = {NAME: Wanted(offset=offset, bytes_max=bytes_max)}
    peer = Peer(number=number, address="127.0.0.1")
    return FetchWish(wanted=wanted, bytes_min=1, bytes_max=2**20, until_ms=0, peer=peer, afterwards=[])


async def _read_together(transport: _Held, wishes: list[FetchWish], gone: int | None = None) -> list[Reading]:
    """The readings of all, whose first calls are under way at once. The task of the one that is `gone` is cancelled."""
    context = Context(service=Service(transport), settings=SETTINGS)
    reader = Reader(context, Tails(context))
    tasks = [asyncio.create_task(reader.read(each)) for each in wishes]
    while not transport.fetches:
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    if gone is not None:
        tasks.pop(gone).cancel()
    transport.go.set()
    found = await asyncio.gather(*tasks)
    await context.close()
    return [each[NAME] for each in found]


def _service() -> MemoryPenstock:
    service = MemoryPenstock()
    service.create_topic("orders")
    with service.producer() as producer:
        for number in range(5):
            producer.send("orders", b"%d" % number)
    return service


def _read(wishes: list[FetchWish], *, failures: int = 0, gone: int | None = None) -> tuple[list[Reading], int]:
    async def run() -> tuple[list[Reading], int]:
        transport = _Held(service, failures)
        return await _read_together(transport, wishes, gone), transport.fetches

    with _service() as service:
        return asyncio.run(run())


def test_ten_clients_at_one_offset_cost_one_fetch() -> None:
    readings, fetches = _read([_wish(number) for number in range(10)])
    assert fetches == 1
    assert len({bytes(each.records) for each in readings}) == 1
    assert readings[0].records


def test_clients_that_wait_for_a_fetch_that_is_refused_ask_for_themselves() -> None:
    readings, fetches = _read([_wish(number) for number in range(3)], failures=1)
    assert fetches == 2
    assert [each.error for each in readings].count(KafkaError.none) == 2


def test_clients_that_wait_for_a_client_that_goes_fetch_without_it() -> None:
    readings, _ = _read([_wish(number) for number in range(3)], gone=0)
    assert all(each.records for each in readings)


def test_clients_at_other_offsets_and_with_smaller_bounds_fetch_for_themselves() -> None:
    _, fetches = _read([_wish(0), _wish(1, offset=5), _wish(2, bytes_max=1)])
    assert fetches == 3


def test_gateway_lets_go_what_is_too_old_though_no_client_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        transport = _Held(service)
        transport.go.set()
        context = Context(service=Service(transport), settings=SETTINGS)
        reader = Reader(context, Tails(context))
        await reader.read(_wish(0))
        await reader.read(_wish(1, offset=5))  # at the end, which the gateway's tails know
        assert reader._shared._bytes
        assert not reader._shared._ends
        timer = reader._forgetting
        assert timer is not None
        assert timer.when() - asyncio.get_running_loop().time() <= SDK_SHARED_MS / 1_000 + 1
        later_ms = monotonic_ms() + SDK_SHARED_MS + 1
        monkeypatch.setattr("penstock_kafka.fetch.reader.monotonic_ms", lambda: later_ms)
        timer._run()  # as the loop does in its time
        assert not reader._shared._bytes
        assert reader._forgetting is None
        await context.close()

    with _service() as service:
        asyncio.run(run())


def test_empty_batch_covers_the_offsets_and_has_no_records() -> None:
    data = empty_batch(40, 47)
    ((position, header),) = walk(data)
    assert (header.base_offset, header.next_offset, header.record_count) == (40, 47, 0)
    assert crc_is_valid(data, position, header)


def _request(session: tuple[int, int], wanted: dict[int, int], forgotten: tuple[int, ...] = ()) -> SimpleNamespace:
    partitions = [
        SimpleNamespace(partition=number, fetch_offset=offset, partition_max_bytes=10)
        for number, offset in wanted.items()
    ]
    return SimpleNamespace(
        session_id=session[0],
        session_epoch=session[1],
        topics=[SimpleNamespace(topic="t", partitions=partitions)],
        forgotten_topics_data=[SimpleNamespace(topic="t", partitions=forgotten)],
    )


@pytest.fixture
def sessions() -> Sessions:
    numbers = iter(range(10**6))
    return Sessions(lambda _: next(numbers))


def test_session_takes_changes_and_forgets(sessions: Sessions) -> None:
    session = sessions.of(_request((0, 0), {0: 5, 1: 6}))
    assert (session.session_id, session.epoch) == (1, 1)
    session = sessions.of(_request((1, 1), {1: 7, 2: 8}, forgotten=(0,)))
    assert session.wanted == {PartitionName("t", 1): Wanted(7, 10), PartitionName("t", 2): Wanted(8, 10)}
    assert session.epoch == 2


def test_partitions_with_records_are_read_last(sessions: Sessions) -> None:
    session = sessions.of(_request((0, 0), {0: 0, 1: 0, 2: 0}))
    session.read([PartitionName("t", 0), PartitionName("t", 9)])
    assert [name.partition for name in session.wanted] == [1, 2, 0]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ((1, 2), KafkaError.invalid_fetch_session_epoch),
        ((9, 1), KafkaError.fetch_session_id_not_found),
    ],
)
def test_client_begins_anew_when_its_session_is_another(
    sessions: Sessions, asked: tuple[int, int], code: KafkaError
) -> None:
    sessions.of(_request((0, 0), {0: 0}))
    with pytest.raises(RequestRefused) as refused:
        sessions.of(_request(asked, {}))
    assert refused.value.code is code


def test_session_ends_when_the_client_closes_it(sessions: Sessions) -> None:
    sessions.of(_request((0, 0), {0: 0}))
    assert not sessions.of(_request((1, -1), {0: 0})).is_kept
    with pytest.raises(RequestRefused):
        sessions.of(_request((1, 1), {}))


def test_oldest_sessions_end_when_all_of_them_have_too_many_partitions(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_kafka.fetch.sessions.KAFKA_SESSIONS_PARTITIONS_MAX", 5)
    for _ in range(2):
        sessions.of(_request((0, 0), {0: 0, 1: 0}))
    sessions.of(_request((1, 1), {2: 0}))
    sessions.of(_request((0, 0), {0: 0, 1: 0}))  # ends the second: the first was used after it
    sessions.of(_request((1, 2), {}, forgotten=(0, 1)))
    sessions.of(_request((3, 1), {2: 0}))
    with pytest.raises(RequestRefused):
        sessions.of(_request((2, 1), {}))


def test_oldest_session_ends_when_there_are_too_many(sessions: Sessions) -> None:
    for _ in range(KAFKA_SESSIONS_MAX + 1):
        sessions.of(_request((0, 0), {0: 0}))
    with pytest.raises(RequestRefused):
        sessions.of(_request((1, 1), {}))
    assert sessions.of(_request((2, 1), {})).session_id == 2
