"""One topic of a share group is deleted: its locks are lost, and the consumers work on the other topics."""

from typing import Any

import pytest

from penstock import ShareRecord
from penstock.testing import MemoryPenstock
from tests.sdk.share.share_kinds import ShareKind
from tests.sdk.share.work_group import WorkGroup
from tests.support.deadlines import until


def send(service: MemoryPenstock, topic: str, *values: bytes) -> None:
    with service.producer() as producer:
        for value in values:
            producer.send(topic, value)


@pytest.mark.parametrize("config", [{}, {"ordering": "key"}, {"filter": {"kind": [{"exists": False}]}}])
@pytest.mark.parametrize("wait", ["poll", "wake"])
def test_consumers_work_on_and_close_when_a_topic_of_theirs_is_deleted(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock, wait: str, config: dict[str, Any]
) -> None:
    service.create_topic("gone")
    workers.admin.create_share_group("both", ["orders", "gone"], config)
    workers.append(b"1")
    send(service, "gone", b"x", b"y")
    with consumers.consumer(group_id="both", wait=wait, acknowledge="explicit") as consumer:
        held: list[ShareRecord] = []
        until(lambda: len(held) == 3, step=lambda: held.extend(consumer.poll(timeout_ms=50)))
        workers.admin.delete_topic("gone")
        for record in held:
            consumer.accept(record)
        workers.append(b"2")
        seen: list[bytes | None] = []
        until(lambda: seen, step=lambda: seen.extend(each.value for each in consumer.poll(timeout_ms=50)))
        assert seen == [b"2"]


def test_released_records_of_a_deleted_topic_are_lost_and_tell_no_error(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock
) -> None:
    service.create_topic("gone")
    workers.admin.create_share_group("both", ["orders", "gone"], {"dead_letter_topic": None})
    send(service, "gone", b"x", b"y")
    with consumers.consumer("gone", group_id="both", acknowledge="explicit") as consumer:
        held: list[ShareRecord] = []
        until(lambda: len(held) == 2, step=lambda: held.extend(consumer.poll(timeout_ms=50)))
        workers.admin.delete_topic("gone")
        consumer.release(held[0])
        consumer.reject(held[1], "bad")
        assert consumer.poll(timeout_ms=50) == []
