"""One topic of a group is deleted: its partitions are lost, and the members read the other topics on."""

from typing import Any

import pytest

from penstock.errors import LeaseLostError
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.sdk.group.group_fixtures import FAST, RebalanceRecorder
from tests.support.deadlines import until

GROUP = {**FAST, "auto_offset_reset": "earliest"}
STAYS, GONE = TopicPartition("stays", 0), TopicPartition("gone", 0)


@pytest.fixture(autouse=True)
def topics(service: MemoryPenstock) -> None:
    for name in ("stays", "gone"):
        service.create_topic(name)


def send(service: MemoryPenstock, topic: str, *values: bytes) -> None:
    with service.producer() as producer:
        for value in values:
            producer.send(topic, value)


def read(consumer: Any, count: int) -> list[bytes | None]:
    """Polls until so many records have come."""
    seen: list[bytes | None] = []
    until(lambda: len(seen) >= count, step=lambda: seen.extend(each.value for each in consumer.poll(timeout_ms=50)))
    return seen


@pytest.mark.parametrize("wait", ["poll", "wake"])
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("commit_ms", [0, 60_000])
def test_members_read_on_and_close_when_a_topic_of_theirs_is_deleted(
    clients: ClientKind, service: MemoryPenstock, wait: str, delivery: str, commit_ms: int
) -> None:
    send(service, "gone", b"a")
    send(service, "stays", b"b")
    recorder = RebalanceRecorder()
    settings: dict[str, Any] = {"delivery": delivery, "wait": wait, **GROUP, **recorder.settings()}
    if delivery == "at_least_once":
        settings["auto_commit_interval_ms"] = commit_ms
    with clients.consumer("stays", "gone", **settings) as consumer:
        assert sorted(map(bytes.decode, filter(None, read(consumer, 2)))) == ["a", "b"]
        service.admin().delete_topic("gone")
        send(service, "stays", b"c")
        assert read(consumer, 1) == [b"c"]
        until(lambda: recorder.partitions("on_lost") == [0], step=lambda: consumer.poll(timeout_ms=50))
        assert consumer.assignment() == [STAYS]
    assert recorder.partitions("on_lost") == recorder.partitions("on_revoked") == [0]


def test_commit_of_a_deleted_topic_is_a_lost_lease_and_the_others_are_committed(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    send(service, "gone", b"a")
    send(service, "stays", b"b")
    with clients.consumer("stays", "gone", **GROUP, enable_auto_commit=False) as consumer:
        read(consumer, 2)
        service.admin().delete_topic("gone")
        with pytest.raises(LeaseLostError, match="deleted"):
            consumer.commit({STAYS: 1, GONE: 1})
        assert consumer.committed(STAYS) == 1


def test_member_reads_on_when_a_topic_goes_before_its_start_is_known(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    """The lease is granted, and no offset is committed: the member asks where the topic begins."""
    send(service, "stays", b"b")
    deleted: list[bool] = []

    def delete() -> None:
        if not deleted:
            deleted.append(True)
            service.admin().delete_topic("gone")

    with clients.consumer("stays", "gone", **GROUP, on_assigned=lambda _: delete()) as consumer:
        assert read(consumer, 1) == [b"b"]
    assert deleted


def test_partitions_of_a_topic_that_was_made_anew_come_back(service: MemoryPenstock) -> None:
    send(service, "gone", b"a")
    recorder = RebalanceRecorder()
    with service.consumer("stays", "gone", **GROUP, **recorder.settings()) as consumer:
        read(consumer, 1)
        service.admin().delete_topic("gone")
        until(lambda: recorder.partitions("on_lost") == [0], step=lambda: consumer.poll(timeout_ms=50))
        service.create_topic("gone")
        send(service, "gone", b"new")
        assert read(consumer, 1) == [b"new"]
