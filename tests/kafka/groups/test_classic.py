import asyncio
from typing import Any

import pytest

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_core.limits import SESSION_TIMEOUT_MS_DEFAULT
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.groups.classic.consumer_protocol import write_assignment, write_subscription
from penstock_kafka.groups.classic.join_group import LEADER
from tests.kafka.groups.cooperative import cooperative
from tests.kafka.groups.desk import GroupDesk, now_ms, owners, run

ALL = [TopicPartition("orders", number) for number in range(4)]


def test_join_makes_a_follower_and_sync_tells_it_all_partitions(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joined = await desk.join()
        assert (joined["leader"], joined["members"], joined["protocol_name"]) == (LEADER, [], "range")
        assert joined["member_id"] != LEADER
        assert (await desk.sync(joined))["assignment"] == write_assignment(ALL)
        assert await desk.beat(joined) == "none"

    run(work())
    found = service.admin().describe_group("g")
    assert found.group.config["session_timeout_ms"] == SESSION_TIMEOUT_MS_DEFAULT  # the client's own is no setting
    assert found.members[0].session_timeout_ms == 6_000
    assert found.group.config["assignor"] == "range"
    assert {each.owner for each in found.partitions} == {found.members[0].member_id}


def test_second_member_gets_its_part_once_the_first_has_joined_again(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        first = await desk.join()
        second = await desk.join()
        assert (await desk.sync(second))["assignment"] == write_assignment([])
        assert await desk.beat(first) == "rebalance_in_progress"
        again = await desk.join(first["member_id"])
        assert again["generation_id"] > first["generation_id"]
        assert await desk.beat(second) == "rebalance_in_progress"
        second = await desk.join(second["member_id"])
        parts = [(await desk.sync(each))["assignment"] for each in (again, second)]
        assert sorted(parts) == sorted([write_assignment(ALL[:2]), write_assignment(ALL[2:])])
        assert [await desk.beat(each) for each in (again, second)] == ["none", "none"]

    run(work())


def test_cooperative_member_keeps_its_part_while_it_lets_go_of_the_rest(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        first = await desk.join(**cooperative([]))
        await desk.join(**cooperative([]))
        assert await desk.beat(first) == "rebalance_in_progress"
        told = await desk.join(first["member_id"], **cooperative(ALL))
        kept = (await desk.sync(told))["assignment"]
        assert kept in (write_assignment(ALL[:2]), write_assignment(ALL[2:]))
        # Until it says what it keeps, all four are its own, and it may commit for them.
        assert await desk.commit(told, dict.fromkeys(range(4), 0)) == dict.fromkeys(range(4), "none")
        half = ALL[:2] if kept == write_assignment(ALL[:2]) else ALL[2:]
        told = await desk.join(first["member_id"], **cooperative(half))
        assert (await desk.sync(told))["assignment"] == kept
        assert await desk.beat(told) == "none"

    run(work())


def test_member_that_leaves_gives_its_partitions_back_at_once(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        first = await desk.join()
        left = await desk.ask(
            ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": first["member_id"], "group_instance_id": None}]
        )
        assert [each["error_code"].name for each in left["members"]] == ["none"]
        assert await desk.beat(first) == "unknown_member_id"
        assert (await desk.sync(await desk.join()))["assignment"] == write_assignment(ALL)

    run(work())


def test_old_generation_is_refused_after_the_member_has_joined_again(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        old = await desk.join()
        await desk.join(old["member_id"])
        assert await desk.beat(old) == "illegal_generation"
        assert (await desk.sync(old))["error_code"].name == "illegal_generation"

    run(work())


def test_new_process_of_an_instance_fences_the_old_one(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, other = GroupDesk(service), GroupDesk(service)
        old = await desk.join(group_instance_id="i1")
        new = await other.join(group_instance_id="i1")
        assert (await other.sync(new))["assignment"] == write_assignment(ALL)
        assert await desk.beat(old) == "fenced_instance_id" or await _later(desk, old) == "fenced_instance_id"
        # The old process does not take the instance back, at whatever gateway it asks.
        refused = await GroupDesk(service).join(old["member_id"], group_instance_id="i1")
        assert refused["error_code"].name == "fenced_instance_id"

    async def _later(desk: GroupDesk, old: dict[str, Any]) -> str:
        joined = await desk.join(old["member_id"], group_instance_id="i1")
        return str(joined["error_code"].name)

    run(work())


def test_operator_removes_a_static_member_by_its_instance_alone(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        await desk.join(group_instance_id="i1")
        members = [{"member_id": "", "group_instance_id": each} for each in ("i1", "i2")]
        left = await desk.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=members)
        assert [each["error_code"].name for each in left["members"]] == ["none", "unknown_member_id"]

    run(work())
    assert set(owners(service).values()) == {None}


@pytest.mark.parametrize(
    "request_fields",
    [
        {"protocol_type": "connect", "protocols": []},
        {"protocols": [{"name": "stream", "metadata": write_subscription(["orders"])}]},
        {"protocols": [{"name": "range", "metadata": b"\x00"}]},
        {"protocols": []},
    ],
)
def test_join_is_refused_when_the_client_wants_its_own_leader(
    service: MemoryPenstock, request_fields: dict[str, Any]
) -> None:
    answer = run(GroupDesk(service).join(**request_fields))
    assert answer["error_code"].name == "inconsistent_group_protocol"
    assert service.admin().list_groups() == []


def test_old_client_joins_without_an_id_and_leaves_alone(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joined = await desk.ask(
            ApiKey.JOIN_GROUP,
            0,
            group_id="g",
            session_timeout=6_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "roundrobin", "metadata": write_subscription(["orders"])}],
        )
        assert joined["error_code"].name == "none"
        left = await desk.ask(ApiKey.LEAVE_GROUP, 0, group_id="g", member_id=joined["member_id"])
        assert left["error_code"].name == "none"

    run(work())
    assert service.admin().describe_group("g").group.config["assignor"] == "round_robin"


@pytest.mark.parametrize(("session_ms", "code"), [(1_999, "invalid_session_timeout"), (2_000, "none")])
def test_session_timeout_that_no_group_has_is_refused_at_the_join(
    service: MemoryPenstock, session_ms: int, code: str
) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        assert (await desk.join(session_timeout=session_ms))["error_code"].name == code
        assert (await desk.join(session_timeout=1_800_001))["error_code"].name == "invalid_session_timeout"

    run(work())


def test_each_member_has_its_own_session_when_their_settings_differ(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, other = GroupDesk(service), GroupDesk(service)
        quick = await desk.join(session_timeout=6_000)
        slow = await desk.join(session_timeout=60_000)
        await other.commit(slow, {0: 0})  # another gateway goes on with it
        await other.beat(slow)
        assert await desk.beat(quick) == "rebalance_in_progress"

    run(work())
    found = service.admin().describe_group("g").members
    assert sorted(each.session_timeout_ms or 0 for each in found) == [6_000, 60_000]
    ends_ms = {each.session_timeout_ms: each.session_ends_at_ms - now_ms() for each in found}
    assert ends_ms[6_000] <= 6_000 < 45_000 < ends_ms[60_000]


def test_client_that_joins_again_unasked_gets_new_partitions_at_once(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        first = await desk.join()
        service.admin().add_partitions("orders", 6)
        again = await desk.join(first["member_id"])
        assert (await desk.sync(again))["assignment"] == write_assignment(
            TopicPartition("orders", number) for number in range(6)
        )

    run(work())


def test_second_member_is_told_its_part_alone_when_the_first_takes_its_time(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        first = await desk.join()
        second = asyncio.create_task(desk.join(rebalance_timeout=60_000))
        await _is_told(desk, first)
        assert not second.done()
        await desk.join(first["member_id"])
        assert (await desk.sync(await second))["assignment"] != write_assignment([])

    run(work())


def test_members_that_start_together_are_told_their_parts_at_once(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joins = await asyncio.gather(*[desk.join(rebalance_timeout=60_000) for _ in range(2)])
        parts = [(await desk.sync(each))["assignment"] for each in joins]
        assert sorted(parts) == sorted([write_assignment(ALL[:2]), write_assignment(ALL[2:])])

    run(work())


def test_join_takes_more_topics_than_a_client_finds_by_name(service: MemoryPenstock) -> None:
    names = ["orders", *(f"tenant.{number}" for number in range(1_500))]

    async def work() -> None:
        desk = GroupDesk(service)
        joined = await desk.join(protocols=[{"name": "range", "metadata": write_subscription(names)}])
        assert (await desk.sync(joined))["assignment"] == write_assignment(ALL)

    run(work())


async def _is_told(desk: GroupDesk, joined: dict[str, Any]) -> None:
    """Heartbeat until the group wants the member to join again."""
    async with asyncio.timeout(10):
        while await desk.beat(joined) == "none":
            await asyncio.sleep(0)
