"""Several gateways serve one group, and one of them may be gone at any time.

Consumers of other makers in groups: each reads all, commits, and leaves.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer

from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_kafka.groups.classic.consumer_protocol import write_assignment
from tests.kafka.groups.cooperative import cooperative
from tests.kafka.groups.desk import GroupDesk, committed, owners, run
from tests.kafka.running_gateway import RunningGateway, running_gateway
from tests.support.deadlines import until

ALL = [TopicPartition("orders", number) for number in range(4)]


def test_other_gateway_takes_commits_and_then_lets_the_client_join_again(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        other = GroupDesk(service)
        assert await other.commit(joined, {0: 7, 1: 7}) == {0: "none", 1: "none"}
        assert await other.commit(joined, {0: 6}) == {0: "illegal_generation"}  # a late copy, perhaps
        assert await other.beat(joined) == "rebalance_in_progress"
        assert await other.commit(joined, {0: 8}) == {0: "none"}
        again = await other.join(joined["member_id"])
        assert again["generation_id"] > joined["generation_id"]
        assert (await other.sync(again))["assignment"] == write_assignment(ALL)
        assert await other.beat(again) == "none"
        assert await other.commit(again, {0: 2}) == {0: "none"}

    run(work())
    assert committed(service) == {0: 2, 1: 7}
    assert len(service.admin().describe_group("g").members) == 1


def test_cooperative_client_keeps_its_leases_at_the_other_gateway(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join(**cooperative([]))
        before = _epochs(service)
        other = GroupDesk(service)
        again = await other.join(joined["member_id"], **cooperative(ALL))
        assert (await other.sync(again))["assignment"] == write_assignment(ALL)
        assert _epochs(service) == before

    run(work())


def test_first_gateway_is_fenced_once_the_client_has_gone_on_elsewhere(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join()
        again = await second.join(joined["member_id"])
        assert await second.commit(again, {0: 5}) == {0: "none"}
        # A request of the client that was on its way for long, at the gateway that it has left.
        assert await first.commit(joined, {0: 4}) == {0: "illegal_generation"}

    run(work())
    assert committed(service) == {0: 5}


def test_late_commit_does_not_rewind_a_client_that_took_its_leases_along(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join(**cooperative([]))
        assert await first.commit(joined, {0: 3}) == {0: "none"}
        again = await second.join(joined["member_id"], **cooperative(ALL))
        assert await second.commit(again, {0: 5}) == {0: "none"}
        assert await first.commit(joined, {0: 4}) == {0: "illegal_generation"}
        # The client goes on where it is, and may go back there.
        assert await second.commit(again, {0: 1}) == {0: "none"}

    run(work())
    assert committed(service) == {0: 1}


def test_late_commit_does_not_rewind_a_client_that_has_joined_again_elsewhere(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join(**cooperative([]))
        assert await first.commit(joined, {0: 6}) == {0: "none"}
        await second.join(joined["member_id"], **cooperative(ALL))
        assert await first.commit(joined, {0: 3}) == {0: "illegal_generation"}

    run(work())
    assert committed(service) == {0: 6}


def test_client_comes_back_to_a_gateway_that_knows_its_past(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join()
        assert await second.beat(joined) == "rebalance_in_progress"
        again = await second.join(joined["member_id"])
        assert await first.commit(again, {0: 2}) == {0: "none"}
        assert await first.beat(again) == "rebalance_in_progress"
        moved = await GroupDesk(service).join(joined["member_id"])
        back = await first.join(joined["member_id"])
        assert (back["error_code"].name, back["member_id"]) == ("none", joined["member_id"])
        assert (await first.sync(back))["assignment"] == write_assignment(ALL)
        assert moved["error_code"].name == "none"

    run(work())
    assert len(service.admin().describe_group("g").members) == 1


def test_member_may_seek_behind_a_commit_of_somebody_else_after_it_has_joined_again(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join(**cooperative([]))
        again = await second.join(joined["member_id"], **cooperative(ALL))
        assert await second.commit(again, {0: 5}) == {0: "none"}
        assert await first.commit(joined, {0: 4}) == {0: "illegal_generation"}
        assert await first.beat(joined) == "rebalance_in_progress"
        back = await first.join(joined["member_id"], **cooperative(ALL))
        assert (await first.sync(back))["assignment"] == write_assignment(ALL)
        assert await first.commit(back, {0: 4}) == {0: "none"}

    run(work())
    assert committed(service) == {0: 4}


def test_assignment_that_a_gateway_took_along_is_told_by_the_next_one(service: MemoryPenstock) -> None:
    async def work() -> None:
        # The gateway dies between JoinGroup and SyncGroup: the leases are granted, and the client knows nothing.
        joined = await GroupDesk(service).join()
        other = GroupDesk(service)
        assert (await other.sync(joined))["error_code"].name == "rebalance_in_progress"
        again = await other.join(joined["member_id"])
        assert (await other.sync(again))["assignment"] == write_assignment(ALL)

    run(work())
    assert len({*owners(service).values()}) == 1


class _WithoutDescribe:
    """A role that may not describe groups, as API Gateway refuses it."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if (method, path) == ("GET", "/v1/groups/g"):
            return Response(403, {"content-type": "application/json"}, b'{"message": "Forbidden"}')
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        pass


def test_client_joins_anew_when_the_gateway_may_not_describe_groups(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        other = GroupDesk(service, _WithoutDescribe(service.transport))
        assert await other.beat(joined) == "unknown_member_id"
        assert (await other.join())["error_code"].name == "none"

    run(work())


def test_gateway_whose_clock_is_behind_goes_on_with_a_member(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        monkeypatch.setattr("penstock_kafka.apis.wall_clock_ms", lambda: 1_000)
        late = GroupDesk(service)
        again = await late.join(joined["member_id"])
        assert again["error_code"].name == "none"
        assert again["generation_id"] >= 0
        assert (await late.sync(again))["assignment"] == write_assignment(ALL)

    run(work())


def _epochs(service: MemoryPenstock) -> dict[int, int]:
    return {each.partition: each.lease_epoch for each in service.admin().describe_group("g").partitions}


RECORDS = 30
PARTITIONS = 3


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=PARTITIONS)
        with service.producer() as producer:
            for number in range(RECORDS):
                producer.send("orders", value=b"v", partition=number % PARTITIONS)
        with running_gateway(service) as running:
            yield running


def kafka_python(address: str) -> int:
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    )
    count = 0
    while count < RECORDS:
        count += sum(map(len, consumer.poll(timeout_ms=500).values()))
    consumer.commit()
    consumer.close()
    return count


def aiokafka(address: str) -> int:
    async def work() -> int:
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        )
        count = 0
        async with consumer:
            while count < RECORDS:
                count += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
            await consumer.commit()
        return count

    return asyncio.run(work())


def librdkafka(**settings: Any) -> Callable[[str], int]:
    def read(address: str) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.subscribe(["orders"])
        count = 0
        while count < RECORDS:
            count += len([each for each in consumer.consume(RECORDS, 0.2) if not each.error()])
        consumer.commit(asynchronous=False)
        consumer.close()
        return count

    return read


KINDS: dict[str, Callable[[str], int]] = {
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "librdkafka": librdkafka(),
    "librdkafka cooperative": librdkafka(**{"partition.assignment.strategy": "cooperative-sticky"}),
    "librdkafka KIP-848": librdkafka(**{"group.protocol": "consumer"}),
    "librdkafka KIP-848 static": librdkafka(**{"group.protocol": "consumer", "group.instance.id": "i1"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_client_reads_all_commits_and_leaves(gateway: RunningGateway, kind: str) -> None:
    assert KINDS[kind](gateway.address) == RECORDS
    assert committed(gateway.service) == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    members = gateway.service.admin().describe_group("g").members
    assert [each.instance_id for each in members] == (["i1"] if "static" in kind else [])


@pytest.mark.minutes
def test_clients_of_both_protocols_share_a_topic(gateway: RunningGateway) -> None:
    newer = Consumer(
        {
            "bootstrap.servers": gateway.address,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    newer.subscribe(["orders"])
    classic = KafkaConsumer("orders", bootstrap_servers=gateway.address, group_id="g", heartbeat_interval_ms=250)

    def parts() -> tuple[int, int]:
        newer.poll(0.05)
        classic.poll(timeout_ms=50)
        return len(newer.assignment()), len(classic.assignment())

    until(lambda: sorted(parts()) == [1, 2], shown=parts)
    classic.close()
    until(lambda: parts_of(newer) == PARTITIONS, step=lambda: newer.poll(0.1))
    newer.close()


def parts_of(consumer: Consumer) -> int:
    return len(consumer.assignment())


def test_kafka_pythons_admin_lists_describes_and_deletes_groups(gateway: RunningGateway) -> None:
    kafka_python(gateway.address)
    admin = KafkaAdminClient(bootstrap_servers=gateway.address)
    assert [each["group_id"] for each in admin.list_groups()] == ["g"]
    offsets = admin.list_group_offsets({"g": None})["g"]
    assert {each.partition: offset.offset for each, offset in offsets.items()} == dict.fromkeys(range(3), 10)
    admin.delete_groups(["g"])
    assert gateway.service.admin().list_groups() == []
    admin.close()
