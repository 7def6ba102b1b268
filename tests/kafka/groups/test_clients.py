"""Consumers of other makers in groups: each reads all, commits, and leaves."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer

from penstock.testing import MemoryPenstock
from tests.kafka.groups.desk import committed
from tests.kafka.running_gateway import RunningGateway, running_gateway
from tests.support.deadlines import until

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
