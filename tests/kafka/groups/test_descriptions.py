from collections.abc import Iterator

import pytest

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.groups.classic.consumer_protocol import read_subscription
from penstock_kafka.groups.members.member import kafka_id, service_id
from tests.kafka.groups.desk import NOBODY, GroupDesk, run


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=2)
        yield service


def test_groups_are_listed_by_state_and_type(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        await desk.join()
        await desk.join(group="other", session_timeout=6_000)
        listed = await desk.ask(ApiKey.LIST_GROUPS, 5, states_filter=["Stable"], types_filter=["consumer"])
        assert [each["group_id"] for each in listed["groups"]] == ["g", "other"]
        assert (await desk.ask(ApiKey.LIST_GROUPS, 5, states_filter=["Empty"], types_filter=[]))["groups"] == []
        assert (await desk.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=["share"]))["groups"] == []
        assert len((await desk.ask(ApiKey.LIST_GROUPS, 0))["groups"]) == 2

    run(work())


def test_one_group_is_described_in_both_protocols(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        joined = await desk.join()
        [classic] = (await desk.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"]))["groups"]
        [member] = classic["members"]
        assert (classic["group_state"], classic["protocol_data"]) == ("Stable", "range")
        assert member["member_id"] == joined["member_id"]
        assert read_subscription(member["member_metadata"]).topics == ("orders",)
        assert member["member_assignment"] == (await desk.sync(joined))["assignment"]
        [newer] = (await desk.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]))["groups"]
        [topic] = newer["members"][0]["assignment"]["topic_partitions"]
        assert (topic["topic_name"], topic["partitions"]) == ("orders", [0, 1])
        assert newer["members"][0]["target_assignment"] == newer["members"][0]["assignment"]

    run(work())


def test_group_that_does_not_exist_is_dead_or_not_found(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        [old] = (await desk.ask(ApiKey.DESCRIBE_GROUPS, 4, groups=["none"]))["groups"]
        [new] = (await desk.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["none"]))["groups"]
        assert (old["group_state"], old["error_code"].name) == ("Dead", "none")
        assert new["error_code"].name == "group_id_not_found"

    run(work())


def test_group_is_deleted_when_it_has_no_members(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        await desk.join()
        await desk.ask(
            ApiKey.OFFSET_COMMIT,
            9,
            group_id="idle",
            topics=[{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
            **{"generation_id_or_member_epoch": -1, **NOBODY},
        )
        answer = await desk.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "idle"])
        assert [each["error_code"].name for each in answer["results"]] == ["non_empty_group", "none"]

    run(work())
    assert [each.group for each in service.admin().list_groups()] == ["g"]


def test_offsets_are_deleted_where_no_member_reads(service: MemoryPenstock) -> None:
    service.create_topic("parcels", partitions=1)
    service.admin().commit_group_offsets("g", {TopicPartition("parcels", 0): 0, TopicPartition("orders", 0): 0})

    async def work() -> None:
        desk = GroupDesk(service)
        await desk.join()
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("orders", "parcels", "none")]
        answer = await desk.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        codes = [each["partitions"][0]["error_code"].name for each in answer["topics"]]
        assert codes == ["group_subscribed_to_topic", "none", "unknown_topic_or_partition"]
        answer = await desk.ask(ApiKey.OFFSET_DELETE, 0, group_id="none", topics=topics)
        assert answer["error_code"].name == "group_id_not_found"

    run(work())
    assert [each.topic for each in service.admin().group_offsets("g")] == ["orders"]


def test_partition_whose_offset_is_deleted_is_told_so_beside_one_that_does_not_exist(service: MemoryPenstock) -> None:
    service.create_topic("parcels", partitions=1)
    service.admin().commit_group_offsets("g", {TopicPartition("parcels", 0): 0})

    async def work() -> None:
        topics = [{"name": "parcels", "partitions": [{"partition_index": 7}, {"partition_index": 0}]}]
        answer = await GroupDesk(service).ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        codes = {each["partition_index"]: each["error_code"].name for each in answer["topics"][0]["partitions"]}
        assert codes == {7: "unknown_topic_or_partition", 0: "none"}

    run(work())
    assert service.admin().group_offsets("g") == []


@pytest.mark.parametrize("member_id", ["6Q+6iA9UQ/8n==", "a.b-c_d", "ünicode", "app-0123456789abcdef"])
def test_member_ids_come_back_as_the_client_drew_them(member_id: str) -> None:
    assert kafka_id(service_id(member_id)) == member_id
    assert service_id("a.b") != service_id("a+b")
