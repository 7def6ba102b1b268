"""Groups whose leader assigns, by the requests of the classic protocol, in front of the service in memory.

The document of a led group: it is read back, and other bytes are refused.
"""

import asyncio
import json
import zlib
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.group_admin_calls import StoredDocument
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KAFKA_LED_GROUP_BYTES_MAX
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.groups.led.led_codec import decoded, encoded
from penstock_kafka.groups.led.led_group import LedGroup, LedMember, Phase
from penstock_kafka.groups.led.led_groups import LedGroups
from tests.kafka.groups.desk import GroupDesk, run
from tests.support.refusals import refused

GROUP = "workers"
CONNECT = {"protocol_type": "connect", "protocols": [{"name": "compatible", "metadata": b"url"}]}


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=1)
        yield service


async def join(desk: GroupDesk, member_id: str = "", **fields: object) -> dict[str, Any]:
    return await desk.join(member_id, group=GROUP, **{**CONNECT, **fields})


async def sync(desk: GroupDesk, joined: Mapping[str, Any], assignments: Mapping[str, bytes]) -> dict[str, Any]:
    return await desk.ask(
        ApiKey.SYNC_GROUP,
        5,
        group_id=GROUP,
        member_id=joined["member_id"],
        generation_id=joined["generation_id"],
        assignments=[{"member_id": name, "assignment": data} for name, data in assignments.items()],
    )


async def both(first: GroupDesk, second: GroupDesk) -> list[dict[str, Any]]:
    """Two members of one generation, the leader first, before anybody has synced."""
    alone = await join(first)
    other = asyncio.ensure_future(join(second))
    while await first.beat(alone, group=GROUP) == "none":  # until the other one has begun a round
        await asyncio.sleep(0.05)
    again = await join(first, alone["member_id"])
    return [again, await other]


async def leave(desk: GroupDesk, joined: Mapping[str, Any]) -> str:
    members = [{"member_id": joined["member_id"], "group_instance_id": None}]
    answer = await desk.ask(ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=members)
    return str(answer["members"][0]["error_code"].name)


def test_first_member_leads_and_hears_of_itself(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joined = await join(desk)
        assert (joined["error_code"].name, joined["leader"]) == ("none", joined["member_id"])
        assert [(each["member_id"], each["metadata"]) for each in joined["members"]] == [(joined["member_id"], b"url")]
        assert (joined["protocol_type"], joined["protocol_name"]) == ("connect", "compatible")
        told = await sync(desk, joined, {joined["member_id"]: b"all"})
        assert (told["error_code"].name, told["assignment"]) == ("none", b"all")
        assert await desk.beat(joined, group=GROUP) == "none"

    run(work())
    [group] = service.admin().list_groups()
    assert (group.group, group.protocol_type, group.member_count) == (GROUP, "connect", 1)


def test_members_at_two_gateways_are_of_one_generation_and_get_their_leaders_word(service: MemoryPenstock) -> None:
    async def work() -> None:
        a, b = GroupDesk(service), GroupDesk(service)
        leader, follower = await both(a, b)
        assert leader["generation_id"] == follower["generation_id"] == 2
        assert (leader["leader"], follower["leader"]) == (leader["member_id"],) * 2
        assert ({*(each["member_id"] for each in leader["members"])}, follower["members"]) == (
            {leader["member_id"], follower["member_id"]},
            [],
        )
        waiting = asyncio.ensure_future(sync(b, follower, {}))
        mine = await sync(a, leader, {leader["member_id"]: b"0", follower["member_id"]: b"1"})
        assert (mine["assignment"], (await waiting)["assignment"]) == (b"0", b"1")

    run(work())


def test_member_goes_on_at_a_gateway_that_does_not_know_it(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await join(GroupDesk(service))
        other = GroupDesk(service)
        assert (await sync(other, joined, {joined["member_id"]: b"all"}))["assignment"] == b"all"
        assert await GroupDesk(service).beat(joined, group=GROUP) == "none"

    run(work())


def test_others_join_again_when_a_member_leaves(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        leader, follower = await both(desk, desk)
        await sync(desk, leader, {leader["member_id"]: b"0", follower["member_id"]: b"1"})
        assert await leave(desk, leader) == "none"
        assert await desk.beat(leader, group=GROUP) == "unknown_member_id"
        assert await leave(desk, leader) == "unknown_member_id"
        assert await desk.beat(follower, group=GROUP) == "rebalance_in_progress"
        alone = await join(desk, follower["member_id"])
        assert (alone["leader"], alone["generation_id"]) == (follower["member_id"], 3)

    run(work())


def test_requests_of_an_old_generation_are_refused(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        old = await join(desk)
        await leave(desk, old)
        leader, follower = await both(desk, desk)
        assert await desk.beat({**follower, "generation_id": 1}, group=GROUP) == "illegal_generation"
        assert (await sync(desk, {**leader, "generation_id": 1}, {}))["error_code"].name == "illegal_generation"
        assert (await sync(desk, old, {}))["error_code"].name == "unknown_member_id"

    run(work())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": "sr"}, "inconsistent_group_protocol"),
        ({"protocols": [{"name": "eager", "metadata": b""}]}, "inconsistent_group_protocol"),
        ({"group_instance_id": "one"}, "invalid_request"),
        ({"member_id": "made-elsewhere"}, "unknown_member_id"),
    ],
)
def test_join_is_refused(service: MemoryPenstock, fields: dict[str, Any], code: str) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        await join(desk)
        answer = await join(desk, fields.pop("member_id", ""), **fields)
        assert answer["error_code"].name == code

    run(work())


def test_group_is_described_and_listed_as_one_of_the_classic_protocol(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joined = await join(desk)
        await sync(desk, joined, {joined["member_id"]: b"all"})
        [group] = (await desk.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[GROUP]))["groups"]
        assert (group["group_state"], group["protocol_type"], group["protocol_data"]) == (
            "Stable",
            "connect",
            "compatible",
        )
        [member] = group["members"]
        assert (member["member_metadata"], member["member_assignment"]) == (b"url", b"all")
        [listed] = (await desk.ask(ApiKey.LIST_GROUPS, 5, types_filter=["classic"]))["groups"]
        assert (listed["group_id"], listed["protocol_type"], listed["group_type"]) == (GROUP, "connect", "Classic")
        assert (await desk.ask(ApiKey.LIST_GROUPS, 5, types_filter=["consumer"]))["groups"] == []
        [newer] = (await desk.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[GROUP]))["groups"]
        assert newer["error_code"].name == "group_id_not_found"

    run(work())


def test_group_is_deleted_once_its_members_have_left(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joined = await join(desk)

        async def delete() -> str:
            [answer] = (await desk.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[GROUP]))["results"]
            return str(answer["error_code"].name)

        assert await delete() == "non_empty_group"
        assert await leave(desk, joined) == "none"
        assert await delete() == "none"

    run(work())
    with pytest.raises(PenstockError) as caught:
        service.admin().describe_group(GROUP)
    assert caught.value.code is ErrorCode.UNKNOWN_GROUP


def test_only_a_group_with_members_is_watched_once_it_is_described() -> None:
    watched: list[str] = []
    stored: dict[str, StoredDocument] = {}

    class Documents:
        async def read(self, group: str) -> StoredDocument | None:
            return stored.get(group)

        async def write(
            self, group: str, version: int | None, protocol_type: str, member_count: int, data: bytes
        ) -> int:
            raise AssertionError("a description writes nothing")

    def start(work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        watched.append(name)

    member = LedMember(member_id="m-led", session_ms=10_000, rebalance_ms=10_000, protocols=(("compatible", b""),))
    alive = LedGroup(protocol_type="connect", phase=Phase.STABLE, members={"m-led": member})
    stored["consumers"] = StoredDocument(version=1, data=None)
    stored["left"] = StoredDocument(version=1, data=encoded(LedGroup(protocol_type="connect")))
    stored["alive"] = StoredDocument(version=1, data=encoded(alive))

    async def work() -> None:
        groups = LedGroups(Documents(), "g", start)
        found = [await groups.describe(name) for name in ("missing", "consumers", "left", "alive")]
        assert [len(each.members) for each in found] == [0, 0, 0, 1]

    run(work())
    assert watched == ["watch over group alive"]


_TEXTS = st.text(max_size=12)
_COUNTS = st.integers(0, 2**40)
_MEMBERS = st.builds(
    LedMember,
    member_id=_TEXTS,
    client_id=_TEXTS,
    session_ms=_COUNTS,
    rebalance_ms=_COUNTS,
    protocols=st.lists(st.tuples(_TEXTS, st.binary(max_size=40)), max_size=3).map(tuple),
    gateway=_TEXTS,
    beats=_COUNTS,
    has_joined=st.booleans(),
    assignment=st.binary(max_size=40),
)
_GROUPS = st.builds(
    LedGroup,
    protocol_type=_TEXTS,
    phase=st.sampled_from(Phase),
    round=_COUNTS,
    generation=_COUNTS,
    protocol=_TEXTS,
    leader=_TEXTS,
    members=st.lists(_MEMBERS, max_size=3).map(lambda found: {each.member_id: each for each in found}),
)
_ONE = LedGroup(protocol_type="connect")


@given(_GROUPS)
def test_group_is_read_back(group: LedGroup) -> None:
    assert decoded(encoded(group)) == group


def test_group_is_read_from_what_is_stored_today() -> None:
    content = {
        "format": 1,
        "protocol_type": "connect",
        "phase": "stable",
        "round": 3,
        "generation": 1,
        "protocol": "compatible",
        "leader": "a",
        "members": {
            "a": {
                "client_id": "c",
                "session_ms": 10_000,
                "rebalance_ms": 60_000,
                "protocols": [["compatible", "AAE="]],
                "gateway": "g",
                "beats": 7,
                "has_joined": True,
                "assignment": "AgM=",
            }
        },
    }
    group = decoded(zlib.compress(json.dumps(content).encode()))
    assert json.loads(zlib.decompress(encoded(group))) == content
    assert group.members["a"].assignment == b"\x02\x03"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        zlib.compress(b"{}"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"format": 2}'),
        encoded(_ONE)[:-2],
        zlib.compress(b" " * (KAFKA_LED_GROUP_BYTES_MAX + 1) + b"{}"),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    refused(ErrorCode.UNSUPPORTED_FORMAT, lambda: decoded(data))
