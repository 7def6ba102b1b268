"""Members of the newer protocol (KIP-848)."""

import asyncio
from typing import Any

import pytest

from penstock.system import wall_clock_ms
from penstock.testing import MemoryPenstock
from penstock_core.limits import SESSION_TIMEOUT_MS_DEFAULT
from penstock_kafka import apis
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.groups.consumer import consumer_group_heartbeat
from penstock_kafka.groups.consumer.consumer_group_heartbeat import simple_patterns
from tests.kafka.groups.desk import GroupDesk, committed, run


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


@pytest.mark.parametrize(
    ("expression", "patterns"),
    [
        (r"eu\.orders-.*", ("eu.orders-*",)),
        (r"(^tenant\..*)|(^ord.*$)", ("tenant.*", "ord*")),  # as librdkafka joins two patterns
        ("orders|payments", ("orders", "payments")),
        *[(each, ()) for each in ("order.", "(a+)+b", "", "orders[0-9]", "a\\", r"a\|b", "(a|b)")],
    ],
)
def test_expression_becomes_patterns_where_both_say_the_same(expression: str, patterns: tuple[str, ...]) -> None:
    assert simple_patterns(expression) == patterns


def test_expression_subscribes_to_the_names_found_now_and_later(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_group_heartbeat, "NAMES_AGE_MS_MAX", 0)
    for name in ("tenant.1", "tenant.x"):
        service.create_topic(name, partitions=1)

    async def work() -> None:
        desk = GroupDesk(service)
        joined = await _join(desk, "m1", subscribed_topic_names=None, subscribed_topic_regex=r"(^tenant\.[0-9]+$)")
        assert [each["partitions"] for each in joined["assignment"]["topic_partitions"]] == [[0]]
        created = await asyncio.to_thread(service.admin().create_topic, "tenant.2", partitions=1)
        desk.context.service.topics.changed(created)
        told = await _beat(desk, "m1", joined["member_epoch"])
        assert len(told["assignment"]["topic_partitions"]) == 2

    run(work())
    assert service.admin().describe_group("g").members[0].patterns == ("tenant.1", "tenant.2")


@pytest.mark.parametrize("expression", ["(", "(?=a)", "((a{1,100}){1,10}){1,10}"])
def test_expression_is_refused_when_it_is_none_or_too_large(service: MemoryPenstock, expression: str) -> None:
    answer = run(_join(GroupDesk(service), "m1", subscribed_topic_names=None, subscribed_topic_regex=expression))
    assert answer["error_code"].name == "invalid_regular_expression"


def test_expression_finds_no_topic_of_the_service() -> None:
    compiled = consumer_group_heartbeat._compiled("(_audit|_penstock.*|orders)")
    assert consumer_group_heartbeat._matching(compiled, ["_audit", "_penstock.x", "orders"]) == ("orders",)


def test_second_process_of_an_instance_is_refused_while_the_first_is_connected(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        await _join(desk, "m1", instance_id="eu-1")
        assert (await _join(desk, "m2", instance_id="eu-1"))["error_code"].name == "unreleased_instance_id"
        desk.peer.gone.set()  # the first one is killed
        assert _numbers(await _join(desk, "m2", instance_id="eu-1")) == [0, 1, 2, 3]

    run(work())


def test_second_process_of_an_instance_joins_when_the_session_of_the_first_has_ended(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host of the first one died: its connection stays open, and nothing comes."""
    later_ms = 0
    monkeypatch.setattr(apis, "wall_clock_ms", lambda: wall_clock_ms() + later_ms)

    async def work() -> None:
        nonlocal later_ms
        desk = GroupDesk(service)
        await _join(desk, "m1", instance_id="eu-1")
        assert (await _join(desk, "m2", instance_id="eu-1"))["error_code"].name == "unreleased_instance_id"
        later_ms = SESSION_TIMEOUT_MS_DEFAULT
        assert (await _join(desk, "m2", instance_id="eu-1"))["error_code"].name == "none"

    run(work())


def test_topic_is_taken_back_when_the_client_subscribes_to_fewer(service: MemoryPenstock) -> None:
    service.create_topic("bills", partitions=1)

    async def work() -> None:
        desk = GroupDesk(service)
        joined = await _join(desk, "m1", subscribed_topic_names=["bills", "orders"])
        held = joined["assignment"]["topic_partitions"]
        await _beat(desk, "m1", joined["member_epoch"], topic_partitions=held)
        told = await _beat(desk, "m1", joined["member_epoch"], subscribed_topic_names=["orders"])
        assert _numbers(told) == [0, 1, 2, 3]

    run(work())


def test_deleted_topic_is_taken_back_with_the_next_heartbeat(service: MemoryPenstock) -> None:
    service.create_topic("bills", partitions=1)

    async def work() -> None:
        desk = GroupDesk(service)
        joined = await _join(desk, "m1", subscribed_topic_names=["bills", "orders"])
        await asyncio.to_thread(service.admin().delete_topic, "bills")
        desk.context.service.topics.forget("bills")  # as DeleteTopics does, and each look for it
        assert _numbers(await _beat(desk, "m1", joined["member_epoch"])) == [0, 1, 2, 3]

    run(work())


def test_new_partitions_come_with_the_next_heartbeat_when_the_gateway_has_heard_of_them(
    service: MemoryPenstock,
) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        topics = desk.context.service.topics
        joined = await _join(desk, "m1")
        await topics.topic("orders")
        topics.remember([await asyncio.to_thread(service.admin().add_partitions, "orders", 6)])
        assert _numbers(await _beat(desk, "m1", joined["member_epoch"])) == [*range(6)]

    run(work())
