"""Bounds of transactions: memory, stages, partitions, groups and open transactions of one gateway."""

from collections.abc import Iterator

import pytest

from penstock.http.http_message import BATCHES_TYPE
from penstock.testing import MemoryPenstock
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.transactions.epochs.transactional_producer import Buffers
from tests.kafka.transactions.desk import Client, TransactionDesk, run, values

P0 = ("orders", 0)


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=3)
        yield service


async def _open(desk: TransactionDesk, client: Client, *records: str) -> None:
    assert await desk.begin(client) == "none"
    assert await desk.add(client, P0) == "none"
    for each in records:
        assert await desk.produce(client, P0, each) == "none"


def test_full_buffers_are_staged_and_committed_as_one(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        desk.producers.buffers = Buffers(250)
        await _open(desk, client, *map(str, range(10)))
        transaction = desk.producers.all()[0].transaction
        assert transaction is not None
        assert transaction.stages > 1
        assert desk.producers.buffers.held <= 250
        assert values(service) == []
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert values(service) == [*map(str, range(10))]


def test_transaction_of_too_many_stages_or_partitions_can_be_aborted(service: MemoryPenstock) -> None:
    service.create_topic("wide", partitions=100)

    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        assert await desk.begin(client) == "none"
        assert await desk.add(client, *(("wide", number) for number in range(100))) == "invalid_producer_id_mapping"
        desk.producers.buffers = Buffers(0)
        await _open(desk, client)
        codes = [await desk.produce(client, P0, "x") for _ in range(67)]
        assert codes == ["none"] * 64 + ["policy_violation"] * 3
        assert await desk.produce(client, P0, "x", version=11) == "transaction_abortable"
        assert await desk.end(client, commit=True) == "transaction_abortable"
        assert await desk.end(client, commit=False) == "none"
        await desk.close()

    run(work())
    assert values(service) == []


def test_stage_that_arrives_late_holds_what_its_repeat_held(service: MemoryPenstock) -> None:
    late: list[bytes] = []
    is_away = False

    def judge(path: str, body: bytes) -> str:
        if is_away and path == "/v1/transactions":
            late.append(body)
            return "before"
        return ""

    async def work() -> None:
        nonlocal is_away
        desk, client = TransactionDesk(service, judge), Client()
        desk.producers.buffers = Buffers(400)
        await _open(desk, client, "a" * 200)
        is_away = True
        assert await desk.produce(client, P0, "b" * 200) == "kafka_storage_error"  # the stage has no answer
        is_away = False
        assert await desk.produce(client, P0, "c") == "none"  # a smaller batch, for which there was room
        assert await desk.produce(client, P0, "b" * 200) == "none"
        stage = service.transport.call("POST", "/v1/transactions", {}, {"Content-Type": BATCHES_TYPE}, late[0])
        assert stage.status == 200
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert values(service) == ["a" * 200, "b" * 200, "c"]


def test_batch_that_memory_has_no_room_for_is_staged_at_once(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = TransactionDesk(service)
        desk.producers.buffers = Buffers(100)
        clients = [Client(name=f"t{number}") for number in range(3)]
        for each in clients:
            await _open(desk, each, each.name)
            assert desk.producers.buffers.held <= 100
        for each in clients:
            assert await desk.end(each, commit=True) == "none"
        await desk.close()

    run(work())
    assert values(service) == ["t0", "t1", "t2"]


def test_transaction_is_aborted_when_a_batch_finds_no_room_and_its_stage_fails(service: MemoryPenstock) -> None:
    is_away = False

    async def work() -> None:
        nonlocal is_away
        desk, client = TransactionDesk(service, lambda path, body: "before" if is_away else ""), Client()
        desk.producers.buffers = Buffers(0)
        await _open(desk, client, "a")
        is_away = True
        assert await desk.produce(client, P0, "b", version=11) == "transaction_abortable"
        is_away = False
        assert desk.producers.buffers.held == 0
        assert await desk.end(client, commit=False) == "none"
        assert await desk.add(client, P0) == "none"
        assert await desk.produce(client, P0, "c") == "none"  # with the sequence of the batch that was not taken
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert values(service) == ["c"]


def test_another_id_waits_when_too_many_transactions_are_open(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_kafka.transactions.epochs.producers.KAFKA_TRANSACTIONAL_IDS_MAX", 1)

    async def work() -> None:
        desk, first, second = TransactionDesk(service), Client(name="first"), Client(name="second")
        await _open(desk, first, "a")
        assert await desk.begin(second) == "coordinator_load_in_progress"
        assert await desk.end(first, commit=True) == "none"
        assert await desk.begin(second) == "none"
        await desk.close()

    run(work())


def test_transaction_has_a_bound_of_groups(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client)
        codes = [
            (await desk.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, **client.ids, group_id=f"g{number}"))["error_code"].name
            for number in range(100)
        ]
        assert codes == ["none"] * 99 + ["transaction_abortable"]
        await desk.close()

    run(work())
