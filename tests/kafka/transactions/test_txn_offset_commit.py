"""Offsets of members in transactions: under their leases, or not at all."""

import asyncio

import pytest

from penstock.model.groups import GroupDescription
from penstock.testing import MemoryPenstock
from penstock_core.limits import COMMIT_METADATA_BYTES_MAX
from penstock_kafka.apis import open_sessions
from penstock_kafka.dispatch.api import ApiKey
from tests.kafka.groups.desk import GroupDesk, committed
from tests.kafka.transactions.desk import Client, TransactionDesk, run, values

P0 = ("orders", 0)


async def _open(desk: TransactionDesk, client: Client) -> None:
    assert await desk.begin(client) == "none"
    assert await desk.add(client, P0) == "none"
    assert await desk.produce(client, P0, "a") == "none"


def test_offsets_of_a_member_are_committed_at_another_gateway_than_its_own(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client)
        member = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        assert await desk.send_offsets(client, {0: 1, 1: 2}, **member) == "none"
        assert await desk.send_offsets(client, {0: 3}, **member) == "none"
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert committed(service) == {0: 3, 1: 2}


def test_stale_generation_and_unknown_member_are_refused(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        joined = await GroupDesk(service).join()
        await _open(desk, client)
        ids = {"member_id": joined["member_id"]}
        assert await desk.send_offsets(client, {0: 1}, **ids, generation_id=joined["generation_id"]) == "none"
        assert await desk.send_offsets(client, {0: 1}, **ids, generation_id=0) == "illegal_generation"
        assert await desk.send_offsets(client, {0: 1}, member_id="nobody", generation_id=1) == "unknown_member_id"
        await desk.close()

    run(work())


@pytest.mark.parametrize("is_member", [True, False])
def test_nothing_is_committed_when_another_member_owns_the_partition(
    service: MemoryPenstock, *, is_member: bool
) -> None:
    async def work() -> None:
        groups, desk, client = GroupDesk(service), TransactionDesk(service), Client()
        joined = await groups.join()
        member = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]} if is_member else {}
        await _open(desk, client)
        assert await desk.send_offsets(client, {0: 1}, **member) == "none"
        members = [{"member_id": joined["member_id"], "group_instance_id": None}]
        await groups.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=members)
        await groups.join()
        assert await desk.end(client, commit=True) == "transaction_abortable"
        assert await desk.end(client, commit=False) == "none"
        await desk.close()

    run(work())
    assert values(service) == []
    assert committed(service) == {}


def test_member_without_a_lease_of_the_partition_is_refused(service: MemoryPenstock) -> None:
    service.create_topic("others", partitions=1)

    async def work() -> None:
        joined = await GroupDesk(service).join()
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client)
        member = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        await desk.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, **client.ids, group_id="g")
        partitions = [{"partition_index": 0, "committed_offset": 1}]
        topics = [{"name": "others", "partitions": partitions}]
        answer = await desk.ask(ApiKey.TXN_OFFSET_COMMIT, 3, **client.ids, group_id="g", **member, topics=topics)
        assert answer["topics"][0]["partitions"][0]["error_code"].name == "illegal_generation"
        await desk.close()

    run(work())


def test_group_that_was_not_added_and_long_metadata_are_refused(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, client = TransactionDesk(service), Client()
        await _open(desk, client)
        for metadata, code in ((None, "invalid_txn_state"), ("x" * COMMIT_METADATA_BYTES_MAX + "x", None)):
            partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
            answer = await desk.ask(
                ApiKey.TXN_OFFSET_COMMIT,
                3,
                **client.ids,
                group_id="g",
                generation_id=-1,
                member_id="",
                topics=[{"name": "orders", "partitions": [partition]}],
            )
            found = answer["topics"][0]["partitions"][0]["error_code"].name
            assert found == (code or "offset_metadata_too_large")
        await desk.close()

    run(work())


def test_offsets_whose_member_is_looked_up_for_long_do_not_come_into_the_next_transaction(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        desk, client = TransactionDesk(service), Client()
        member = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        describe, is_asked, goes_on = open_sessions(desk.context).service.describe, asyncio.Event(), asyncio.Event()

        async def slow(group: str) -> GroupDescription:
            if not is_asked.is_set():
                is_asked.set()
                await goes_on.wait()
            return await describe(group)

        async def repeat_and_go_on() -> None:  # by another connection, after the client has given up the first
            assert await desk.send_offsets(client, {0: 1}, **member) == "none"
            assert await desk.end(client, commit=True) == "none"
            await _again(desk, client)
            assert await desk.send_offsets(client, {0: 2}, **member) == "none"

        monkeypatch.setattr(open_sessions(desk.context).service, "describe", slow)
        await _open(desk, client)
        late = asyncio.create_task(desk.send_offsets(client, {0: 1}, **member))
        await is_asked.wait()
        going_on = asyncio.create_task(repeat_and_go_on())
        await asyncio.wait({going_on}, timeout=0.05)
        goes_on.set()
        await asyncio.gather(late, going_on)
        assert await desk.end(client, commit=True) == "none"
        await desk.close()

    run(work())
    assert committed(service) == {0: 2}


async def _again(desk: TransactionDesk, client: Client) -> None:
    assert await desk.add(client, P0) == "none"
    assert await desk.produce(client, P0, "b") == "none"
