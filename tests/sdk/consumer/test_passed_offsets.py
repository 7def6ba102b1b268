"""A member commits offsets that it has passed without a record, once all that it has returned is committed."""

from typing import Any

import pytest

from penstock import Transformer
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until

P0 = TopicPartition("t", 0)
FAST: dict[str, Any] = {
    "group_id": "g",
    "filter": {"type": ["order"]},
    "max_poll_records": 1,
    "fetch_wait_ms": 10,
    "wait": "poll",
}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.consumer.commits.SDK_PASSED_COMMIT_MS", 1)


@pytest.fixture
def topic(service: MemoryPenstock) -> str:
    """Five records; the second is an order."""
    service.create_topic("t")
    with service.producer() as producer:
        for number in range(5):
            kind = b"order" if number == 1 else b"refund"
            producer.send("t", b"%d" % number, headers=[("type", kind)])
    return "t"


def committed(service: MemoryPenstock) -> int | None:
    [partition] = service.admin().describe_group("g").partitions
    return partition.offset


@pytest.mark.parametrize("settings", [{"delivery": "at_most_once"}, {"enable_auto_commit": False}])
def test_member_commits_the_end_when_no_record_there_matches(
    clients: ClientKind, topic: str, service: MemoryPenstock, settings: dict[str, Any]
) -> None:
    returned: list[int] = []

    def is_at_end() -> bool:
        records = consumer.poll(timeout_ms=20)
        returned.extend(each.offset for each in records)
        if records and not settings.get("enable_auto_commit", True):
            consumer.commit()
        return bool(returned) and committed(service) == 5

    with clients.consumer(topic, **FAST, **settings) as consumer:
        until(is_at_end)
    assert returned == [1]


def test_member_commits_nothing_when_a_record_is_not_committed(
    clients: ClientKind, topic: str, service: MemoryPenstock
) -> None:
    def is_at_end() -> bool:
        consumer.poll(timeout_ms=20)
        return bool(consumer.assignment()) and consumer.position(P0) == 5

    with clients.consumer(topic, **FAST, enable_auto_commit=False) as consumer:
        until(is_at_end)
        for _ in range(3):
            consumer.poll(timeout_ms=5)
        assert committed(service) is None


def test_member_commits_nothing_when_the_application_has_sought(
    clients: ClientKind, topic: str, service: MemoryPenstock
) -> None:
    def is_at_end() -> bool:
        consumer.poll(timeout_ms=20)
        return bool(consumer.position(P0) == 5)

    with clients.consumer(topic, **FAST, enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        until(lambda: bool(consumer.poll(timeout_ms=20)))
        consumer.commit()
        consumer.seek(P0, 3)
        until(is_at_end)
        consumer.poll(timeout_ms=5)
        assert committed(service) == 2


def test_transformer_commits_the_end_when_no_record_there_matches(topic: str, service: MemoryPenstock) -> None:
    handled = []
    with (
        service.consumer(topic, **FAST, delivery="exactly_once") as consumer,
        service.producer(transactional_id="t-1") as producer,
    ):
        transformer = Transformer(consumer, producer, lambda record, _: handled.append(record.offset))
        transformer.run(lambda: bool(handled) and committed(service) == 5, timeout_ms=20)
    assert handled == [1]
