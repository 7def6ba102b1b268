"""One fetch for all clients that read the same records, and batches for offsets that hold no record."""

import asyncio
from collections.abc import Mapping

import pytest

from penstock.http.http_message import Response
from penstock.system import monotonic_ms
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.limits import SDK_SHARED_MS
from penstock_core.records.record_batch import crc_is_valid, walk
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Peer
from penstock_kafka.errors import KafkaError
from penstock_kafka.fetch.reader import FetchWish, Reader, Reading, empty_batch
from penstock_kafka.fetch.sessions import PartitionName, Wanted
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
