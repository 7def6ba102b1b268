"""Members of share groups, and the groups that they make."""

from typing import Any

import pytest

from penstock.model.access import AccessRule
from penstock.testing import MemoryPenstock
from penstock_core.limits import KAFKA_SHARE_MEMBER_MS_MAX
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.groups.group_errors import uuid_of_id
from tests.kafka.groups.desk import run
from tests.kafka.share.desk import ShareDesk, member_of, send

USER = "arn:aws:iam::000000000000:user/worker"


async def beat(desk: ShareDesk, epoch: int, *, member_id: str = "m1", topics: Any = None) -> dict[str, Any]:
    return await desk.ask(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        group_id="workers",
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=topics,
    )


def test_first_member_creates_the_group_and_is_told_all_partitions(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = ShareDesk(service)
        joined = await beat(desk, 0, topics=("orders", "no-such-topic"))
        assert joined["error_code"].name == "none"
        assert (joined["member_id"], joined["member_epoch"], joined["heartbeat_interval"]) == ("m1", 1, 5_000)
        [topic] = service.admin().list_topics()
        assert joined["assignment"] == {
            "topic_partitions": [{"topic_id": uuid_of_id(topic.topic_id), "partitions": [0, 1, 2]}]
        }
        again = await beat(desk, 1)
        assert (again["member_epoch"], again["assignment"]) == (1, None)

    run(work())
    [group] = service.admin().list_share_groups()
    assert (group.group, group.topics, group.config["start"]) == ("workers", ("orders",), "earliest")


def test_another_topic_is_added_and_the_epoch_rises(service: MemoryPenstock) -> None:
    service.create_topic("bills")

    async def work() -> None:
        desk, other = ShareDesk(service), ShareDesk(service)
        await beat(desk, 0, topics=("orders",))
        await beat(other, 0, member_id="m2", topics=("bills",))
        changed = await beat(desk, 1, topics=("bills", "orders"))
        assert changed["member_epoch"] == 2
        assert len(changed["assignment"]["topic_partitions"]) == 2
        told_again = await beat(desk, 1)  # the answer before was lost
        assert (told_again["member_epoch"], told_again["assignment"]) == (2, changed["assignment"])

    run(work())
    [group] = service.admin().list_share_groups()
    assert set(group.topics) == {"orders", "bills"}


def test_topic_that_a_member_adds_comes_behind_those_that_the_group_lists(service: MemoryPenstock) -> None:
    service.create_topic("urgent")
    service.create_topic("bills")
    service.create_share_group("workers", "urgent", {"topic_order": "listed"})
    service.admin().alter_share_group("workers", {}, ["urgent", "orders"])

    async def work() -> None:
        joined = await beat(ShareDesk(service), 0, topics=("bills", "orders"))
        assert joined["error_code"].name == "none"

    run(work())
    [group] = service.admin().list_share_groups()
    assert group.topics == ("urgent", "orders", "bills")


def test_group_of_an_operator_keeps_its_settings(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders", {"lock_ms": 5_000})

    async def work() -> None:
        member = member_of(ShareDesk(service), service)
        await member.join()
        send(service, "a")
        assert len(await member.fetch()) == 1
        assert member.answer["acquisition_lock_timeout"] == 5_000

    run(work())


@pytest.mark.parametrize(
    ("epoch", "code"), [(1, "unknown_member_id"), (0, "invalid_request")], ids=["unknown", "no subscription"]
)
def test_member_that_the_gateway_does_not_know_joins_first(service: MemoryPenstock, epoch: int, code: str) -> None:
    async def work() -> None:
        assert (await beat(ShareDesk(service), epoch))["error_code"].name == code

    run(work())


def test_epochs_of_the_future_and_of_the_past_are_fenced(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = ShareDesk(service)
        await beat(desk, 0, topics=("orders",))
        assert (await beat(desk, 2))["error_code"].name == "fenced_member_epoch"

    run(work())


def test_member_that_left_or_was_silent_joins_again(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_000

    def clock() -> int:
        return now_ms

    monkeypatch.setattr("penstock_kafka.share.share_group_heartbeat.monotonic_ms", clock)

    async def work() -> None:
        nonlocal now_ms
        desk = ShareDesk(service)
        await beat(desk, 0, topics=("orders",))
        left = await beat(desk, -1)
        assert (left["error_code"].name, left["member_epoch"]) == ("none", -1)
        assert (await beat(desk, 1))["error_code"].name == "unknown_member_id"
        await beat(desk, 0, topics=("orders",))
        now_ms += KAFKA_SHARE_MEMBER_MS_MAX + 1
        assert (await beat(desk, 1))["error_code"].name == "unknown_member_id"

    run(work())


def test_member_that_died_is_forgotten_although_no_client_asks(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_kafka.share.members.KAFKA_SHARE_MEMBER_MS_MAX", 1)

    async def work() -> None:
        desk = ShareDesk(service)
        await beat(desk, 0, topics=("orders",))
        states: list[str] = []
        while "Empty" not in states:
            listed = await desk.ask(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=("share",))
            states = [each["group_state"] for each in listed["groups"]]

    run(work())


def _rules(*pairs: tuple[str, str]) -> list[AccessRule]:
    return [AccessRule(principal=USER, operation=operation, resource=resource) for operation, resource in pairs]


@pytest.mark.parametrize("group_rights", [[], [("read", "share_group:workers")]], ids=["none", "read"])
def test_group_that_the_gateway_may_not_create_is_refused(group_rights: list[tuple[str, str]]) -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        service.admin().change_acls(add=_rules(("read", "topic:orders"), *group_rights))

        async def work() -> None:
            answer = await beat(ShareDesk(service, service.transport_as(USER)), 0, topics=("orders",))
            assert answer["error_code"].name == "group_authorization_failed"

        run(work())
        assert service.admin().list_share_groups() == []


def test_reading_rights_are_enough_for_a_group_that_is_there() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        service.create_share_group("workers", "orders")
        service.admin().change_acls(add=_rules(("read", "topic:orders"), ("read", "share_group:workers")))
        send(service, "a")

        async def work() -> None:
            member = member_of(ShareDesk(service, service.transport_as(USER)), service)
            assert (await member.join())["error_code"].name == "none"
            assert await member.accept(await member.fetch()) == {0: "none"}

        run(work())


def test_groups_are_described_with_their_members_and_listed_beside_consumer_groups(service: MemoryPenstock) -> None:
    service.create_share_group("idle", "orders")

    async def work() -> None:
        desk = ShareDesk(service)
        await desk.join(group="readers")
        await beat(desk, 0, topics=("orders",))
        listed = await desk.ask(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=("share",))
        assert {(each["group_id"], each["group_state"], each["group_type"]) for each in listed["groups"]} == {
            ("idle", "Empty", "Share"),
            ("workers", "Stable", "Share"),
        }
        everything = await desk.ask(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=())
        assert {each["group_id"] for each in everything["groups"]} == {"idle", "workers", "readers"}
        [found, missing] = (await desk.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=("workers", "none")))["groups"]
        assert (found["group_state"], found["assignor_name"]) == ("Stable", "simple")
        [member] = found["members"]
        assert (member["member_id"], member["subscribed_topic_names"]) == ("m1", ("orders",))
        assert missing["error_code"].name == "group_id_not_found"

    run(work())


def test_group_with_members_is_not_deleted_and_an_empty_one_is(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = ShareDesk(service)
        await beat(desk, 0, topics=("orders",))
        [refused] = (await desk.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("workers",)))["results"]
        assert refused["error_code"].name == "non_empty_group"
        await beat(desk, -1)
        [done] = (await desk.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("workers",)))["results"]
        assert done["error_code"].name == "none"

    run(work())
    assert service.admin().list_share_groups() == []


def test_offsets_are_described_and_reset_while_no_member_is_there(service: MemoryPenstock) -> None:
    send(service, "a", "b")

    async def alter(desk: ShareDesk, offset: int) -> dict[str, Any]:
        topics = [{"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": offset}]}]
        return await desk.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="workers", topics=topics)

    async def work() -> None:
        desk = ShareDesk(service)
        member = member_of(desk, service)
        await member.join()
        await member.accept(await member.fetch())
        asked = [{"group_id": "workers", "topics": None}, {"group_id": "none", "topics": None}]
        [found, missing] = (await desk.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked))["groups"]
        assert missing["error_code"].name == "group_id_not_found"
        [topic] = found["topics"]
        first = topic["partitions"][0]
        assert (topic["topic_name"], first["start_offset"], first["lag"]) == ("orders", 2, 0)
        assert (await alter(desk, 1))["error_code"].name == "non_empty_group"
        await beat(desk, -1)
        answer = await alter(desk, 1)
        assert answer["responses"][0]["partitions"] == [{"partition_index": 0, "error_code": answer["error_code"]}]
        await member.join()
        assert [each.value for each in await member.fetch()] == ["b"]

    run(work())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": "g" * 250}, "invalid_group_id"),
        ({"group_id": ""}, "invalid_group_id"),
        ({"member_id": "m" * 101}, "invalid_request"),
        ({"rack_id": "r" * 101}, "invalid_request"),
        ({"subscribed_topic_names": ("t" * 250,)}, "invalid_topic_exception"),
    ],
)
def test_member_with_a_name_that_is_too_long_is_not_remembered(
    service: MemoryPenstock, fields: dict[str, Any], code: str
) -> None:
    async def work() -> None:
        desk = ShareDesk(service)
        request = {"group_id": "workers", "member_id": "m1", "member_epoch": 0, "subscribed_topic_names": ()}
        answer = await desk.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **{**request, **fields})
        assert answer["error_code"].name == code
        assert not desk.context.share_members

    run(work())


def test_topic_that_was_made_anew_is_read_by_members_of_each_gateway(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = ShareDesk(service)
        await beat(desk, 0, topics=("orders",))
        service.admin().delete_topic("orders")
        service.create_topic("orders", partitions=1)
        send(service, "new")
        other = member_of(ShareDesk(service), service, "m2")
        await other.join()
        assert [each.value for each in await other.fetch()] == ["new"]

    run(work())


def test_topic_that_was_deleted_does_not_keep_others_from_being_added(service: MemoryPenstock) -> None:
    for name in ("bills", "parcels"):
        service.create_topic(name)

    async def work() -> None:
        await beat(ShareDesk(service), 0, topics=("orders", "bills"))
        service.admin().delete_topic("bills")
        joined = await beat(ShareDesk(service), 0, member_id="m2", topics=("parcels",))
        assert joined["error_code"].name == "none"

    run(work())
    assert service.admin().list_share_groups()[0].topics == ("orders", "parcels")
