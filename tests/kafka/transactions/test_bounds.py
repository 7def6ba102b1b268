"""Bounds of transactions: memory, stages, partitions, groups and open transactions of one gateway.

Batches without the marks of their transaction, and sequences.

The codes of transactions by API and version, as docs/protocol/gateway and the how-to have them.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.http.http_message import BATCHES_TYPE
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.record_batch import parse_header, validate
from penstock_kafka.dispatch.api import ApiKey, Call, Peer
from penstock_kafka.errors import RequestRefused
from penstock_kafka.transactions.begin_and_end import InitProducerId
from penstock_kafka.transactions.epochs.sequences import SEQUENCES, Sequences, plain_batch
from penstock_kafka.transactions.epochs.transactional_producer import Buffers
from penstock_kafka.transactions.refusals import abortable, code_for, fenced, unknown_epoch, wrong_state
from tests.kafka.transactions.desk import Client, TransactionDesk, run, transactional_batch, values

P0 = ("orders", 0)


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


_NO_TRANSACTIONS: Any = None  # plain producers need nothing of the service


def _ask(**fields: object) -> Any:
    request = SimpleNamespace(**{"transactional_id": None, **fields})
    call = Call(key=ApiKey.INIT_PRODUCER_ID, version=4, client_id="", peer=Peer(number=1, address=""), request=request)
    return asyncio.run(InitProducerId(_NO_TRANSACTIONS).answer(call))


def test_producers_get_ids_of_their_own() -> None:
    assert len({_ask(producer_id=-1, producer_epoch=-1)["producer_id"] for _ in range(50)}) == 50


def test_producer_keeps_its_id_when_it_asks_for_another_epoch() -> None:
    answer = _ask(producer_id=5, producer_epoch=3)
    assert (answer["producer_id"], answer["producer_epoch"]) == (5, 4)


def test_producer_gets_another_id_when_its_epochs_are_used_up() -> None:
    answer = _ask(producer_id=5, producer_epoch=2**15 - 2)
    assert answer["producer_id"] != 5
    assert answer["producer_epoch"] == 0


_CLIENT = Client(producer_id=7, epoch=3)
_PLACE = ("orders", 0)


def test_plain_batch_is_what_the_service_takes_with_the_same_records() -> None:
    sent = transactional_batch(_CLIENT, 5, ("a", "b"))
    batch = plain_batch(sent)
    assert (batch.producer_id, batch.producer_epoch, batch.first_sequence, batch.next_sequence) == (7, 3, 5, 7)
    assert validate(batch.data).sequence is None
    assert not parse_header(batch.data).is_transactional
    assert batch.data[61:] == sent[61:]


def test_flipped_bit_two_batches_and_plain_batches_are_refused() -> None:
    sent = transactional_batch(_CLIENT, 0, ("a",))
    for data in (sent[:-1] + b"x", sent + sent, plain_batch(sent).data, sent[:30]):
        with pytest.raises((RequestRefused, PenstockError)):
            plain_batch(data)


def test_sequence_after_the_last_is_zero() -> None:
    sequences, last = Sequences(), plain_batch(transactional_batch(_CLIENT, SEQUENCES - 1, ("a",)))
    with pytest.raises(RequestRefused):
        sequences.is_new(_PLACE, last)
    sequences.take(_PLACE, last)
    assert sequences.is_new(_PLACE, plain_batch(transactional_batch(_CLIENT, 0, ("b",))))
    assert not sequences.is_new(_PLACE, last)


_AWAY = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")
_OTHERS_ID = PenstockError(ErrorCode.ACCESS_DENIED, "of another role")


@pytest.mark.parametrize(
    ("error", "key", "version", "code"),
    [
        (abortable("full"), ApiKey.PRODUCE, 11, "transaction_abortable"),
        (abortable("full"), ApiKey.PRODUCE, 10, "policy_violation"),
        (abortable("full"), ApiKey.END_TXN, 4, "transaction_abortable"),
        (abortable("full"), ApiKey.END_TXN, 3, "invalid_producer_id_mapping"),
        (abortable("full"), ApiKey.ADD_PARTITIONS_TO_TXN, 3, "invalid_producer_id_mapping"),
        (fenced("t"), ApiKey.INIT_PRODUCER_ID, 4, "producer_fenced"),
        (fenced("t"), ApiKey.INIT_PRODUCER_ID, 3, "invalid_producer_epoch"),
        (fenced("t"), ApiKey.END_TXN, 1, "invalid_producer_epoch"),
        (fenced("t"), ApiKey.PRODUCE, 11, "invalid_producer_epoch"),
        (fenced("t"), ApiKey.TXN_OFFSET_COMMIT, 4, "invalid_producer_epoch"),
        (unknown_epoch("t"), ApiKey.PRODUCE, 3, "invalid_producer_id_mapping"),
        (unknown_epoch("t"), ApiKey.PRODUCE, 11, "transaction_abortable"),
        (wrong_state("late"), ApiKey.END_TXN, 0, "invalid_txn_state"),
        (_AWAY, ApiKey.END_TXN, 4, "coordinator_not_available"),
        (_AWAY, ApiKey.PRODUCE, 11, "kafka_storage_error"),
        (_OTHERS_ID, ApiKey.INIT_PRODUCER_ID, 5, "transactional_id_authorization_failed"),
    ],
)
def test_code_is_one_that_the_version_knows(
    error: PenstockError | RequestRefused, key: ApiKey, version: int, code: str
) -> None:
    call = Call(key=key, version=version, client_id="", peer=Peer(number=1, address=""), request=None)
    assert code_for(error, call).name == code
