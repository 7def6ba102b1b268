"""A group that reads from the end misses no record of a partition, or of a topic, that comes while it reads."""

from typing import Any

import pytest

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until

LATEST: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "latest",
    "heartbeat_interval_ms": 250,
    "session_timeout_ms": 2_000,
    "fetch_wait_ms": 10,
}


def _send(service: MemoryPenstock, topic: str, partition: int, *values: str) -> None:
    with service.producer() as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


@pytest.mark.slow
def test_records_of_partitions_and_topics_that_come_later_are_read(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    service.create_topic("orders")
    _send(service, "orders", 0, "before the group")
    with clients.consumer("order*", **LATEST) as consumer:
        until(lambda: consumer.assignment() == [TopicPartition("orders", 0)], step=lambda: consumer.poll(timeout_ms=20))
        assert consumer.position(TopicPartition("orders", 0)) == 1
        service.admin().add_partitions("orders", 2)
        service.create_topic("orders-eu")
        _send(service, "orders", 1, "first of partition 1")
        _send(service, "orders-eu", 0, "first of orders-eu")
        seen: list[Any] = []
        until(lambda: len(seen) >= 2, step=lambda: seen.extend(consumer.poll(timeout_ms=50)))
    assert sorted(record.value for record in seen) == [b"first of orders-eu", b"first of partition 1"]
