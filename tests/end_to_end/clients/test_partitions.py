"""Partitions drain, and generations open, on the deployed functions and their tables (docs/protocol/partitions)."""

import pytest

from penstock import Admin, Consumer, Producer
from penstock.model import TopicPartition
from tests.end_to_end.local_stack import Stack
from tests.support.deadlines import until

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
KEYS = [b"%d" % number for number in range(12)]
DEADLINE_S = 60.0


@pytest.mark.parametrize("ordering", ["none", "wait"])
def test_producer_and_group_go_on_when_partitions_drain(stack: Stack, admin: Admin, ordering: str) -> None:
    name, group = f"draining-{ordering}", f"drainers-{ordering}"
    admin.create_topic(name, 3, {"ordering_on_change": ordering})
    found: list[tuple[bytes | None, bytes | None]] = []
    with (
        Producer(transport=stack.transport()) as producer,
        Consumer(name, group_id=group, transport=stack.transport(), auto_commit_interval_ms=500) as consumer,
    ):

        def read() -> int:
            found.extend((record.key, record.value) for record in consumer.poll(timeout_ms=500))
            return len(found)

        for key in KEYS:
            producer.send(name, b"before", key=key)
        producer.flush()
        until(lambda: read() == len(KEYS))
        topic = admin.set_partitions(name, 1)
        assert (topic.writable_partitions, topic.partitions) == ((1, 3) if ordering == "none" else (1, 4))
        assert topic.first_writable_partition == (0 if ordering == "none" else 3)
        sent = [producer.send(name, b"after", key=key) for key in KEYS]
        places = {each.result(DEADLINE_S).partition for each in sent}
        assert places == {topic.first_writable_partition}
        until(lambda: read() == 2 * len(KEYS))
    for key in KEYS:
        assert [value for each, value in found if each == key] == [b"before", b"after"]
    states = {each.partition: each.state for each in admin.describe_topic(name).offsets}
    assert [number for number, state in states.items() if state == "active"] == [topic.first_writable_partition]
    assert admin.list_offsets(name, "latest")[1] is not None
    assert TopicPartition(name, 0) in admin.partitions([name])
