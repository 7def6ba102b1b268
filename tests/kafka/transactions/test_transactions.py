"""Transactions of one client at one gateway, and at the next one after the first has gone."""

import asyncio

import pytest

from penstock.model import Topic
from penstock.testing import MemoryPenstock
from penstock_kafka.dispatch.api import ApiKey
from tests.kafka.transactions.desk import Client, TransactionDesk, run, values

P0, P1 = ("orders", 0), ("orders", 1)


async def _open(desk: TransactionDesk, client: Client, *records: str) -> None:
    assert await desk.begin(client) == "none"
    assert await desk.add(client, P0) == "none"
    for each in records:
        assert await desk.produce(client, P0, each) == "none"


def test_records_and_offsets_are_visible_by_the_commit_and_not_before(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client, "a", "b")
        assert await desk.send_offsets(client, {1: 7}) == "none"
        assert values(service) == []
        assert service.admin().group_offsets("g") == []
        assert await desk.end(client, commit=True) == "none"
        assert await desk.end(client, commit=True) == "none"  # the answer was lost
        assert await desk.end(client, commit=False) == "invalid_txn_state"
        await desk.close()

    run(work())
    assert values(service) == ["a", "b"]
    assert [(each.partition, each.offset) for each in service.admin().group_offsets("g")] == [(1, 7)]


def test_aborted_records_are_never_visible_and_the_next_transaction_goes_on(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client, "a")
        assert await desk.end(client, commit=False) == "none"
        assert await desk.end(client, commit=True) == "invalid_txn_state"
        assert await desk.add(client, P0, P1) == "none"
        assert await desk.produce(client, P0, "b") == "none"
        assert await desk.end(client, commit=True) == "none"
        assert desk.producers.buffers.held == 0
        await desk.close()

    run(work())
    assert values(service) == ["b"]


def test_repeated_batch_is_taken_once_and_a_gap_is_refused(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client, "a")
        assert await desk.produce(client, P0, "a", sequence=0) == "none"
        assert await desk.produce(client, P0, "x", sequence=0) == "out_of_order_sequence_number"
        assert await desk.produce(client, P0, "c", sequence=2) == "out_of_order_sequence_number"
        assert await desk.produce(client, P1, "d") == "invalid_txn_state"  # not added
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert values(service) == ["a"]


def test_other_instance_fences_the_first_at_any_gateway(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, other, client, newer = TransactionDesk(service), TransactionDesk(service), Client(), Client()
        await _open(desk, client, "zombie")
        assert await other.begin(newer) == "none"
        assert newer.epoch == client.epoch + 1
        assert await desk.end(client, commit=True) == "producer_fenced"
        assert await desk.begin(client) == "producer_fenced"
        assert await other.add(client, P0) == "producer_fenced"
        assert await other.add(client, P0, version=1) == "invalid_producer_epoch"
        await desk.close()
        await other.close()

    run(work())
    assert values(service) == []


def test_gateway_that_did_not_begin_the_epoch_lets_clients_abort_and_begin_anew(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, other, client = TransactionDesk(service), TransactionDesk(service), Client()
        await _open(desk, client, "lost")
        assert await other.add(client, P1) == "invalid_producer_id_mapping"
        assert await other.produce(client, P0, "b") == "invalid_producer_id_mapping"
        assert await other.send_offsets(client, {0: 1}) == "invalid_producer_id_mapping"
        assert await other.end(client, commit=True) == "invalid_txn_state"  # the first gateway may have committed
        assert await other.begin(client) == "none"
        assert await other.add(client, P0) == "none"
        assert await other.produce(client, P0, "again") == "none"
        assert await other.end(client, commit=True) == "none"
        await desk.close()
        await other.close()

    run(work())
    assert values(service) == ["again"]


def test_abort_at_another_gateway_makes_a_later_commit_at_the_first_impossible(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, other, client = TransactionDesk(service), TransactionDesk(service), Client()
        await _open(desk, client, "aborted")
        assert await other.end(client, commit=False) == "none"
        assert await other.end(client, commit=False) == "none"
        assert await other.end(client, commit=True) == "invalid_txn_state"
        assert await desk.produce(client, P0, "b") == "none"  # the client has come back to it
        assert await desk.end(client, commit=True) == "producer_fenced"
        assert await other.begin(client) == "none"
        await desk.close()
        await other.close()

    run(work())
    assert values(service) == []


def test_begin_whose_answer_was_lost_is_answered_again(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        assert await desk.begin(client) == "none"
        before = Client(producer_id=client.producer_id, epoch=client.epoch)
        assert await desk.begin(client) == "none"
        assert await desk.begin(before) == "none"
        assert (before.producer_id, before.epoch) == (client.producer_id, client.epoch)
        await desk.close()

    run(work())


@pytest.mark.parametrize("losses", [1, 10**9])
@pytest.mark.parametrize("fate", ["before", "after"])
def test_commit_whose_answers_are_lost_is_made_once(service: MemoryPenstock, fate: str, losses: int) -> None:
    left = losses

    def judge(path: str, body: bytes) -> str:
        nonlocal left
        if path != "/v1/transactions" or left == 0:
            return ""
        left -= 1
        return fate

    async def work() -> str:
        desk, client = TransactionDesk(service, judge), Client()
        await _open(desk, client, "a")
        code = await desk.end(client, commit=True)
        if code != "none":  # it was not committed: the client sends its records again
            assert code == "transaction_abortable"
            assert await desk.end(client, commit=False) == "none"
            nonlocal left
            left = 0
            assert await desk.add(client, P0) == "none"
            assert await desk.produce(client, P0, "a") == "none"
            assert await desk.end(client, commit=True) == "none"
        assert desk.producers.buffers.held == 0
        await desk.close()
        return code

    code = run(work())
    assert code == ("transaction_abortable" if (losses, fate) == (10**9, "before") else "none")
    assert values(service) == ["a"]


def test_outcome_that_no_call_can_tell_keeps_the_client_asking(service: MemoryPenstock) -> None:
    is_away = False

    def judge(path: str, body: bytes) -> str:
        return "after" if is_away else ""

    async def work() -> None:
        nonlocal is_away
        desk, client = TransactionDesk(service, judge), Client()
        await _open(desk, client, "a")
        is_away = True
        assert await desk.end(client, commit=True) == "coordinator_not_available"
        assert await desk.end(client, commit=False) == "coordinator_not_available"
        desk.producers.expire()
        is_away = False
        assert await desk.end(client, commit=True) == "none"
        assert await desk.add(client, P0) == "none"
        assert await desk.produce(client, P0, "b") == "none"
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert values(service) == ["a", "b"]


def test_commit_that_was_in_doubt_and_did_not_happen_is_aborted(service: MemoryPenstock) -> None:
    is_away = False

    async def work() -> None:
        nonlocal is_away
        desk, client = TransactionDesk(service, lambda path, body: "before" if is_away else ""), Client()
        await _open(desk, client, "a")
        is_away = True
        assert await desk.end(client, commit=True, version=3) == "coordinator_not_available"
        is_away = False
        assert await desk.end(client, commit=True, version=3) == "invalid_producer_id_mapping"
        assert await desk.end(client, commit=False) == "none"
        await desk.close()

    run(work())
    assert values(service) == []


def test_transaction_ends_when_its_time_is_over(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_000
    monkeypatch.setattr("penstock_kafka.transactions.epochs.transactional_producer.monotonic_ms", lambda: now_ms)

    async def work() -> None:
        nonlocal now_ms
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client, "a")
        now_ms += 59_999
        desk.producers.expire()
        assert await desk.produce(client, P0, "b") == "none"
        now_ms += 1
        desk.producers.expire()
        assert desk.producers.buffers.held == 0
        assert await desk.end(client, commit=True) == "transaction_abortable"
        assert await desk.end(client, commit=False) == "none"
        assert await desk.begin(client, timeout_ms=900_001) == "invalid_transaction_timeout"
        await desk.close()

    run(work())
    assert values(service) == []


def test_requests_of_a_closed_connection_change_nothing(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client, "a")
        desk.peer.gone.set()
        assert await desk.end(client, commit=True) == "coordinator_not_available"
        assert await desk.add(client, P1) == "coordinator_not_available"
        assert await desk.produce(client, P0, "b") == "coordinator_not_available"
        assert await desk.send_offsets(client, {0: 1}) == "coordinator_not_available"
        assert await desk.begin(client) == "coordinator_not_available"
        await desk.close()

    run(work())
    assert values(service) == []


def test_producer_that_begins_anew_frees_the_buffer_of_its_old_epoch(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client, newer = TransactionDesk(service), Client(), Client()
        await _open(desk, client, "a")
        assert desk.producers.buffers.held > 0
        assert await desk.begin(newer) == "none"
        assert desk.producers.buffers.held == 0
        assert await desk.produce(client, P0, "b") == "invalid_producer_epoch"
        await desk.close()

    run(work())


def test_batch_for_no_topic_and_batch_above_the_topics_size_are_refused(service: MemoryPenstock) -> None:
    service.admin().alter_topic("orders", {"max_batch_bytes": 1_024})

    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client)
        assert await desk.add(client, ("nowhere", 0)) == "unknown_topic_or_partition"
        assert await desk.add(client, ("orders", 9)) == "unknown_topic_or_partition"
        assert await desk.produce(client, P0, "x" * 2_000) == "message_too_large"
        assert await desk.produce(client, P0, "x") == "none"
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert values(service) == ["x"]


def test_admin_requests_tell_of_open_transactions(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client, "a", "b")
        listed = await desk.ask(ApiKey.LIST_TRANSACTIONS, 1, state_filters=["Ongoing"], duration_filter=-1)
        assert [each["transactional_id"] for each in listed["transaction_states"]] == ["t"]
        none = await desk.ask(ApiKey.LIST_TRANSACTIONS, 1, state_filters=["Empty", "Odd"], duration_filter=-1)
        assert (none["transaction_states"], none["unknown_state_filters"]) == ([], ["Odd"])
        described = await desk.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t", "u"])
        found, unknown = described["transaction_states"]
        assert found["topics"] == [{"topic": "orders", "partitions": [0]}]
        assert unknown["error_code"].name == "transactional_id_not_found"
        topics = [{"name": "orders", "partition_indexes": [0, 1, 9]}]
        answer = await desk.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
        active, idle, missing = answer["topics"][0]["partitions"]
        assert [each["last_sequence"] for each in active["active_producers"]] == [1]
        assert idle["active_producers"] == []
        assert missing["error_code"].name == "unknown_topic_or_partition"
        await desk.close()

    run(work())


def test_partitions_whose_topic_is_looked_up_for_long_do_not_open_the_next_transaction(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        look_up, is_asked, goes_on = desk.context.service.topics.topic, asyncio.Event(), asyncio.Event()

        async def slow(name: str) -> Topic:
            if not is_asked.is_set():
                is_asked.set()
                await goes_on.wait()
            return await look_up(name)

        async def repeat_and_commit() -> None:  # by another connection, after the client has given up the first
            assert await desk.add(client, P0) == "none"
            assert await desk.produce(client, P0, "a") == "none"
            assert await desk.end(client, commit=True) == "none"

        monkeypatch.setattr(desk.context.service.topics, "topic", slow)
        assert await desk.begin(client) == "none"
        late = asyncio.create_task(desk.add(client, P0))
        await is_asked.wait()
        going_on = asyncio.create_task(repeat_and_commit())
        for _ in range(200):  # turns of the loop, in which it ends or waits for the first request
            await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(late, going_on)
        assert desk.producers.all()[0].status == "CompleteCommit"
        await desk.close()

    run(work())
