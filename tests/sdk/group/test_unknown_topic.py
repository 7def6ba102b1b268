"""A group that reads from the end misses no record of a partition, or of a topic, that comes while it reads."""

import logging
from typing import Any

import pytest

from penstock.errors import InvalidError
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


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "does not exist" in each.getMessage()]


def test_group_that_waits_for_an_unknown_topic_is_told_once_in_the_log(
    service: MemoryPenstock, clients: ClientKind, caplog: pytest.LogCaptureFixture
) -> None:
    service.create_topic("known")
    with caplog.at_level(logging.WARNING), clients.consumer("nope", group_id="g") as consumer:
        until(lambda: _warnings(caplog), step=lambda: consumer.poll(timeout_ms=20))
        assert consumer.poll(timeout_ms=20) == []
        assert _warnings(caplog) == ["topic 'nope' does not exist: group 'g' waits for it"]
        consumer.subscribe(["known", "none"])
        until(lambda: len(_warnings(caplog)) == 2 or consumer.assignment(), step=lambda: consumer.poll(timeout_ms=20))


def test_commit_without_a_group_is_refused_before_a_record_was_returned(
    service: MemoryPenstock, clients: ClientKind
) -> None:
    service.create_topic("orders")
    with clients.consumer("orders") as consumer, pytest.raises(InvalidError, match="group_id"):
        consumer.commit()


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
