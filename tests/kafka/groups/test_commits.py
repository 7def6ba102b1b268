import asyncio
import threading
from collections.abc import Iterator, Mapping

import pytest

from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_kafka.dispatch.api import ApiKey, Peer
from penstock_kafka.groups.classic.consumer_protocol import write_assignment, write_subscription
from tests.kafka.groups.desk import NOBODY, GroupDesk, committed, run


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=2)
        with service.producer() as producer:
            for number in range(40):
                producer.send("orders", value=b"v", partition=number % 2)
        yield service


def test_member_commits_and_seeks_back(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        member = await desk.join()
        assert await desk.commit(member, {0: 10, 1: 4}) == {0: "none", 1: "none"}
        assert await desk.commit(member, {0: 3}) == {0: "none"}

    run(work())
    assert committed(service) == {0: 3, 1: 4}


def test_zombie_does_not_rewind_what_the_next_owner_has_committed(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk, other = GroupDesk(service), GroupDesk(service)
        zombie = await desk.join()
        await desk.commit(zombie, {0: 5, 1: 5})
        await other.ask(
            ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": zombie["member_id"], "group_instance_id": None}]
        )
        owner = await other.join()
        assert await other.commit(owner, {0: 9, 1: 9}) == {0: "none", 1: "none"}
        # At its own gateway, which still has its leases, and at one that asks the service.
        assert await desk.commit(zombie, {0: 6, 1: 12}) == {0: "illegal_generation", 1: "illegal_generation"}
        assert await GroupDesk(service).commit(zombie, {0: 6}) == {0: "unknown_member_id"}
        # The zombie has lost its leases. Partitions that a member owns are no one else's.
        assert await desk.commit(zombie, {0: 7}) == {0: "illegal_generation"}

    run(work())
    assert committed(service) == {0: 9, 1: 9}


def test_commit_of_an_old_generation_is_refused_by_member_and_generation(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        old = await desk.join()
        new = await desk.join(old["member_id"])
        assert await desk.commit(old, {0: 2}) == {0: "illegal_generation"}
        assert await desk.commit(new, {0: 1}) == {0: "none"}
        assert await desk.commit({"member_id": "stranger", "generation_id": 7}, {0: 2}) == {0: "unknown_member_id"}

    run(work())
    assert committed(service) == {0: 1}


def test_tool_commits_without_a_member_only_while_no_member_owns(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        assert await desk.commit(NOBODY, {0: 8}) == {0: "none"}
        assert await desk.commit(NOBODY, {0: 2}) == {0: "none"}  # kafka-consumer-groups --reset-offsets
        assert await desk.commit(NOBODY, {0: 21}) == {0: "none"}  # ahead of the end, as tools that copy a group do
        assert await desk.commit(NOBODY, {0: 2**63 - 1, 1: 7}) == {0: "offset_out_of_range", 1: "none"}
        assert await desk.commit(NOBODY, {0: 2}) == {0: "none"}
        await desk.join()
        assert await desk.commit(NOBODY, {0: 3}) == {0: "unknown_member_id"}

    run(work())
    assert committed(service) == {0: 2, 1: 7}


def test_consumer_that_never_joined_commits_by_its_id_only_while_no_member_owns(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        unjoined = {"member_id": "made-by-the-client", "member_epoch": -1}
        assert await desk.commit(unjoined, {0: 8}) == {0: "none"}
        await desk.join()
        assert await desk.commit(unjoined, {0: 9}) == {0: "unknown_member_id"}

    run(work())
    assert committed(service) == {0: 8}


def test_offsets_minus_one_and_minus_two_are_the_end_and_the_beginning(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        member = await desk.join()
        assert await desk.commit(member, {0: -1, 1: -2, 7: -1}) == {
            0: "none",
            1: "none",
            7: "offset_out_of_range",
        }

    run(work())
    assert committed(service) == {0: 20, 1: 0}


def test_commit_refuses_what_the_service_cannot_keep(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        member = await desk.join()
        assert await desk.commit(member, {0: 1}, metadata="m" * 4_097) == {0: "offset_metadata_too_large"}
        assert await desk.commit(member, {0: 2**63 - 1}) == {0: "offset_out_of_range"}
        assert await desk.commit(member, {0: -3, 1: 1}) == {0: "offset_out_of_range", 1: "none"}
        assert await desk.commit(member, {9: 1}) == {9: "unknown_topic_or_partition"}

    run(work())


def test_offset_fetch_answers_several_groups_with_metadata(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        await desk.commit(NOBODY, {0: 8}, metadata="seen by app")
        topics = [{"name": "orders", "partition_indexes": [0, 1]}, {"name": "none", "partition_indexes": [0]}]
        answer = await desk.ask(
            ApiKey.OFFSET_FETCH,
            9,
            groups=[{"group_id": "g", "topics": topics}, {"group_id": "h", "topics": None}],
            require_stable=True,
        )
        first, second = answer["groups"]
        found = {
            (topic["name"], each["partition_index"]): (each["committed_offset"], each["metadata"])
            for topic in first["topics"]
            for each in topic["partitions"]
        }
        assert found == {("orders", 0): (8, "seen by app"), ("orders", 1): (-1, ""), ("none", 0): (-1, "")}
        assert (second["group_id"], second["error_code"].name, second["topics"]) == ("h", "none", [])
        old = await desk.ask(ApiKey.OFFSET_FETCH, 5, group_id="g", topics=None)
        assert [each["name"] for each in old["topics"]] == ["orders"]

    run(work())


def test_leader_epoch_comes_back_when_the_client_committed_one(service: MemoryPenstock) -> None:
    async def work() -> None:
        desk = GroupDesk(service)
        partition = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": 5}
        topics = [{"name": "orders", "partitions": [partition]}]
        await desk.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        await desk.commit(NOBODY, {1: 4})  # names none
        answer = await desk.ask(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}])
        [topic] = answer["groups"][0]["topics"]
        found = {each["partition_index"]: each["committed_leader_epoch"] for each in topic["partitions"]}
        assert found == {0: 5, 1: -1}

    run(work())


def test_commit_for_a_deleted_topic_takes_its_partitions_from_the_member(service: MemoryPenstock) -> None:
    service.create_topic("bills", partitions=1)

    async def work() -> None:
        desk = GroupDesk(service)
        topics = [{"name": "range", "metadata": write_subscription(["orders", "bills"])}]
        member = await desk.join(protocols=topics)
        await asyncio.to_thread(service.admin().delete_topic, "orders")
        assert await desk.commit(member, {0: 0}) == {0: "unknown_topic_or_partition"}
        assert await desk.beat(member) == "rebalance_in_progress"
        again = await desk.join(member["member_id"], protocols=topics)
        assert (await desk.sync(again))["assignment"] == write_assignment([TopicPartition("bills", 0)])

    run(work())


class _SlowTransport:
    """Holds the first commit until `goes_on`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if (method, path) == ("POST", "/v1/groups/g/offsets") and not self.is_asked.is_set():
            self.is_asked.set()
            assert self.goes_on.wait(60)
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        """As the inner one."""
        self._inner.close()


@pytest.mark.parametrize("is_member", [True, False])
def test_commit_of_a_closed_connection_that_arrives_late_does_not_go_back(
    service: MemoryPenstock, *, is_member: bool
) -> None:
    transport = _SlowTransport(service.transport)

    async def work() -> None:
        desk = GroupDesk(service, transport)
        joined = await desk.join() if is_member else NOBODY
        late = asyncio.create_task(desk.commit(joined, {0: 5}))
        await asyncio.to_thread(transport.is_asked.wait, 60)
        desk.peer.gone.set()
        desk.peer = Peer(number=2, address="test")
        assert await desk.commit(joined, {0: 5}) == {0: "none"}
        assert await desk.commit(joined, {0: 9}) == {0: "none"}
        transport.goes_on.set()
        await late
        assert committed(service) == {0: 9}
        assert await desk.commit(joined, {0: 12}) == {0: "none"}  # its lease holds
        assert await desk.commit(joined, {0: 3}) == {0: "none"}  # a client that is there may seek back

    run(work())
    assert committed(service) == {0: 3}
