"""Retention of topics that are deleted, or whose creation or alteration died: what is left of them goes."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import LOG_START_GRACE_MS, TOPIC_PARTITIONS_MAX
from penstock_core.log.topic import DeletedTopic
from penstock_service.instance.instance import Instance
from penstock_service.retention.remove_topic import RetentionResult
from penstock_service.retention.retain import retain
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.support.expiring import old_and_new, put
from tests.support.interleaving import catch_kill, killed_at
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    key_of,
    new_topic,
    patient_instance,
    read_all,
    send,
)

BUDGET_MS = 60_000.0


def run(instance: Instance) -> RetentionResult:
    return retain(instance, budget_ms=BUDGET_MS)


def test_deleted_topic_goes_with_its_note_and_the_new_one_of_its_name_stays(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = old_and_new(instance, clock)
    key = key_of(instance, topic)
    delete_topic(instance, topic)
    new_topic(instance, topic)
    put(instance, topic, 20, clock.now_ms())
    new = read_all(instance, topic)
    assert run(instance).pages_deleted == 0, "a fetch may be under way"
    clock.time_ms += LOG_START_GRACE_MS
    assert run(instance) == RetentionResult(partitions=1, pages_deleted=3, topics_removed=1)
    assert list(instance.stores.log.pages(key, Offset(0), 9)) == []
    assert list(instance.stores.topics.deleted()) == []
    assert read_all(instance, topic) == new


def test_head_that_the_deletion_of_its_topic_did_not_reach_goes(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    key = key_of(instance, topic)
    with catch_kill():
        delete_topic(killed_at(instance, 2, is_applied=False), topic)
    assert key in instance.stores.log.heads([key])
    run(instance)
    assert instance.stores.log.heads([key]) == {}


def heads_left(instance: Instance, topic_id: TopicId) -> int:
    return len(
        instance.stores.log.heads([PartitionKey(topic_id, Partition(number)) for number in range(TOPIC_PARTITIONS_MAX)])
    )


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("calls", range(8))
def test_creation_that_dies_leaves_a_topic_with_all_its_heads_or_in_time_nothing(
    calls: int, is_applied: bool, clock: SteppedClock
) -> None:
    """It dies at each of its calls to storage, before the effect and after it."""
    instance = patient_instance(clock)
    begun: list[TopicId] = []

    def begin(original: Callable[[DeletedTopic], object], note: DeletedTopic) -> None:
        begun.append(note.topic_id)
        original(note)

    noting = Intercepted(instance.stores.topics, begin=begin)
    with catch_kill() as was_killed:
        create_topic(
            killed_at(another_instance(instance, topics=noting), calls, is_applied=is_applied), "orders", 3, {}
        )
    assert was_killed
    for _ in range(2):
        clock.time_ms += LOG_START_GRACE_MS
        run(instance)
    is_visible = bool(instance.stores.topics.list())
    assert [heads_left(instance, topic_id) for topic_id in begun] == [3 if is_visible else 0] * len(begun)
    assert list(instance.stores.topics.deleted()) == []
    if not is_visible:
        create_topic(instance, "orders", 3, {})
    assert send(instance, "orders", "x", partition=2).base_offset == 0


def test_creation_under_way_is_left_alone(instance: Instance, clock: SteppedClock) -> None:
    def create_late(original: Callable[..., None], *arguments: object) -> None:
        clock.time_ms += LOG_START_GRACE_MS - 1
        assert run(instance) == RetentionResult()
        original(*arguments)

    create_topic(
        another_instance(instance, topics=Intercepted(instance.stores.topics, create=create_late)), "orders", 2, {}
    )
    assert send(instance, "orders", "x", partition=1).base_offset == 0


def test_creation_that_outlasts_the_grace_is_refused_and_leaves_no_topic_without_heads(
    instance: Instance, clock: SteppedClock
) -> None:
    def create_late(original: Callable[..., None], *arguments: object) -> None:
        clock.time_ms += LOG_START_GRACE_MS
        run(instance)
        original(*arguments)

    late = another_instance(instance, topics=Intercepted(instance.stores.topics, create=create_late))
    with pytest.raises(PenstockError) as caught:
        create_topic(late, "orders", 2, {})
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert list(instance.stores.topics.list()) == []


def test_partitions_of_an_alteration_that_died_go_after_their_topic(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    topic_id = key_of(instance, topic).topic_id
    refusing = Intercepted(instance.stores.topics, replace=lambda *_: _raise(UNAVAILABLE))
    with pytest.raises(PenstockError, match="STORAGE_UNAVAILABLE"):
        alter_topic(another_instance(instance, topics=refusing), topic, 4, {})
    delete_topic(instance, topic)
    assert heads_left(instance, topic_id) == 3
    run(instance)
    assert heads_left(instance, topic_id) == 3, "another alteration may be under way"
    clock.time_ms += LOG_START_GRACE_MS
    bad = Intercepted(instance.stores.log, heads=lambda *_: _raise(UNAVAILABLE))
    assert run(another_instance(instance, log=bad)) == RetentionResult(failures=1)
    assert run(instance) == RetentionResult(topics_removed=1)
    assert heads_left(instance, topic_id) == 0


def _raise(error: PenstockError) -> NoReturn:
    raise error
