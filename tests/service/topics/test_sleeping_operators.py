"""An operator's program that embeds the service sleeps after any of its calls, until its topic is gone for good."""

from contextlib import suppress

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import LOG_START_GRACE_MS
from penstock_core.log.topic import DeletedTopic
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.support.interleaving import asleep_after
from tests.support.service import Intercepted, SteppedClock, another_instance, key_of, new_topic, with_stores

CALLS = 9  # of an operation on four partitions, and one more


def retain_for_days(instance: Instance, clock: SteppedClock) -> None:
    for _ in range(6):
        clock.time_ms += 2 * LOG_START_GRACE_MS
        retain(another_instance(instance), budget_ms=60_000.0)
    assert not instance.stores.topics.deleted()


def heads_of(instance: Instance, topic_id: TopicId) -> list[Partition]:
    keys = [PartitionKey(topic_id, Partition(number)) for number in range(8)]
    return [key.partition for key in instance.stores.log.heads(keys)]


@pytest.mark.parametrize("call", range(CALLS))
def test_alteration_that_slept_leaves_no_heads_of_a_deleted_topic(
    instance: Instance, clock: SteppedClock, call: int
) -> None:
    new_topic(instance)
    topic_id = key_of(instance, "orders").topic_id

    def others() -> None:
        delete_topic(another_instance(instance), "orders")
        retain_for_days(instance, clock)

    with suppress(PenstockError):
        alter_topic(asleep_after(instance, call, others), "orders", 4, {})
    assert not heads_of(instance, topic_id) or instance.stores.topics.list()


@pytest.mark.parametrize("call", range(CALLS))
def test_creation_that_slept_leaves_no_heads_without_a_topic(
    instance: Instance, clock: SteppedClock, call: int
) -> None:
    notes: list[DeletedTopic] = []

    def begin(original: object, note: DeletedTopic) -> None:
        notes.append(note)
        original(note)  # type: ignore[operator]

    noted = with_stores(instance, topics=Intercepted(instance.stores.topics, begin=begin))
    with suppress(PenstockError):
        create_topic(asleep_after(noted, call, lambda: retain_for_days(instance, clock)), "orders", 4, {})
    retain_for_days(instance, clock)
    for note in notes:
        assert len(heads_of(instance, note.topic_id)) == 4 * len(instance.stores.topics.list())
