"""Members of the newer protocol (KIP-848)."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.testing import MemoryPenstock
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.errors import RequestRefused
from penstock_kafka.groups.consumer.topic_regex import pattern_of
from tests.kafka.groups.desk import GroupDesk, committed, run


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=4)
        yield service


async def _beat(desk: GroupDesk, member_id: str, epoch: int, **fields: object) -> dict[str, Any]:
    return await desk.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )


async def _join(desk: GroupDesk, member_id: str, **fields: object) -> dict[str, Any]:
    return await _beat(desk, member_id, 0, **{"subscribed_topic_names": ["orders"], "topic_partitions": [], **fields})


def _numbers(answer: dict[str, Any]) -> list[int]:
    return [number for each in answer["assignment"]["topic_partitions"] for number in each["partitions"]]


def test_member_joins_stays_and_leaves(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joined = await _join(desk, "6Q+6iA/w")  # as librdkafka draws ids
        assert (joined["error_code"].name, joined["member_id"], _numbers(joined)) == ("none", "6Q+6iA/w", [0, 1, 2, 3])
        assert joined["member_epoch"] < 2**24
        epoch = joined["member_epoch"]
        held = joined["assignment"]["topic_partitions"]
        assert (await _beat(desk, "6Q+6iA/w", epoch, topic_partitions=held))["member_epoch"] == epoch
        quiet = await _beat(desk, "6Q+6iA/w", epoch)
        assert (quiet["assignment"], quiet["member_epoch"]) == (None, epoch)
        assert await desk.commit(joined, {0: 0}) == {0: "none"}
        assert (await _beat(desk, "6Q+6iA/w", -1))["member_epoch"] == -1

    run(work())
    assert service.admin().describe_group("g").members == ()


def test_partition_moves_after_its_owner_has_let_go(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        first = await _join(desk, "m1")
        epoch, held = first["member_epoch"], first["assignment"]["topic_partitions"]
        await _beat(desk, "m1", epoch, topic_partitions=held)
        second = await _join(desk, "m2")
        assert _numbers(second) == []
        told = await _beat(desk, "m1", epoch)
        kept = _numbers(told)
        assert len(kept) == 2
        assert _numbers(await _beat(desk, "m2", second["member_epoch"], topic_partitions=[])) == []
        # Until it lets go, the first member commits under the epoch in which it got the partitions.
        gone = next(number for number in range(4) if number not in kept)
        assert await desk.commit(first, {gone: 0}) == {gone: "none"}
        await _beat(desk, "m1", told["member_epoch"], topic_partitions=told["assignment"]["topic_partitions"])
        got = await _beat(desk, "m2", second["member_epoch"], topic_partitions=[])
        assert sorted(_numbers(got) + kept) == [0, 1, 2, 3]
        assert await desk.commit(told, {gone: 0}) == {gone: "unknown_member_id"}
        new = {"member_id": "m2", "member_epoch": got["member_epoch"]}
        assert await desk.commit({**new, "member_epoch": second["member_epoch"]}, {gone: 0}) == {
            gone: "stale_member_epoch"
        }
        assert await desk.commit(new, {gone: 0}) == {gone: "none"}

    run(work())
    assert set(committed(service).values()) == {0}


def test_other_gateway_goes_on_without_a_rebalance(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await _join(GroupDesk(service), "m1")
        other = GroupDesk(service)
        assert await other.commit(joined, {1: 0}) == {1: "none"}
        told = await _beat(other, "m1", joined["member_epoch"])
        assert _numbers(told) == [0, 1, 2, 3]
        assert told["member_epoch"] > joined["member_epoch"]
        assert await other.commit(joined, {2: 0}) == {2: "none"}  # under the epoch before, as in KIP-1251

    run(work())


def test_heartbeat_is_refused_when_the_member_or_its_assignor_is_unknown(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        assert (await _beat(desk, "m1", 5))["error_code"].name == "unknown_member_id"
        assert (await _join(desk, "m2", server_assignor="mine"))["error_code"].name == "unsupported_assignor"
        assert (await _beat(desk, "m3", 0))["error_code"].name == "invalid_request"

    run(work())


def test_regular_expression_becomes_a_pattern_where_both_say_the_same(service: MemoryPenstock) -> None:
    answer = run(_join(GroupDesk(service), "m1", subscribed_topic_names=None, subscribed_topic_regex="^ord.*$"))
    assert _numbers(answer) == [0, 1, 2, 3]
    assert pattern_of(r"eu\.orders-.*") == "eu.orders-*"
    for expression in ("orders|payments", "order.", "(a+)+b", "", "orders[0-9]", "a\\"):
        with pytest.raises(RequestRefused):
            pattern_of(expression)
