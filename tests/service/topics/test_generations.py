"""With ordering_on_change=wait a change closes all partitions, and new ones take records (docs/protocol/partitions).

An operator's program that embeds the service sleeps after any of its calls, until its topic is gone for good.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import LOG_START_GRACE_MS, TOPIC_PARTITIONS_MAX
from penstock_core.log.topic import DeletedTopic
from penstock_service.index.heads import open_generation
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.describe_topic import describe_topic
from tests.service.records.test_idempotence import numbered, tell
from tests.support.interleaving import asleep_after, catch_kill, interrupted_before, killed_at
from tests.support.refusals import refused
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
    head_of,
    key_of,
    new_topic,
    read_all,
    send,
    with_stores,
)

CLOSED = ErrorCode.PARTITION_CLOSED


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, partitions=2, ordering_on_change="wait")


def states(instance: Instance, topic: str) -> list[str]:
    _, bounds = describe_topic(instance.topic_cache, instance.stores.log, topic)
    return [each.state.value for each in bounds]


@pytest.mark.parametrize("partitions", [1, 3])
def test_change_closes_all_partitions_and_new_ones_take_the_records(
    instance: Instance, topic: str, partitions: int
) -> None:
    stale = another_instance(instance)
    send(stale, topic, "old", partition=1)
    altered = alter_topic(instance, topic, partitions, {})
    assert (altered.generations, altered.writable_partitions, altered.layout) == ((0, 2), partitions, 1)
    for each in (stale, instance):
        error = refused(CLOSED, partial(send, each, topic, "new", partition=1))
        assert error.facts == {"writable_partitions": partitions, "first_writable_partition": 2}
    assert send(stale, topic, "new", partition=2) == appended(0, 1)
    assert read_all(instance, topic, 1) == [(0, "old")]
    assert states(instance, topic) == ["draining"] * 2 + ["active"] * partitions
    assert head_of(instance, topic, 1).closed_offset == 1


def test_change_closes_heads_that_an_earlier_decrease_has_left_open(instance: Instance) -> None:
    topic = new_topic(instance, partitions=4)
    with catch_kill():
        alter_topic(killed_at(instance, 1, is_applied=True), topic, 2, {})
    assert states(instance, topic)[3] == "draining"
    assert not head_of(instance, topic, 3).is_closed
    alter_topic(instance, topic, 3, {"ordering_on_change": "wait"})
    refused(CLOSED, partial(send, instance, topic, "stale", partition=3))
    assert [head_of(instance, topic, number).closed_offset for number in range(4)] == [0] * 4


def test_same_number_begins_no_generation(instance: Instance, topic: str) -> None:
    assert alter_topic(instance, topic, 2, {}).generations == (0,)
    assert send(instance, topic, "a", partition=1) == appended(0, 1)


def test_repeat_is_answered_when_its_generation_was_closed_since(instance: Instance, topic: str) -> None:
    first = tell(instance, topic, numbered(0, "a"), partition=1)
    alter_topic(instance, topic, 4, {})
    assert tell(instance, topic, numbered(0, "a"), partition=1) == first
    refused(CLOSED, lambda: tell(instance, topic, numbered(1, "b"), partition=1))


def test_newest_generation_drains_and_opens_again_when_the_setting_is_none(instance: Instance, topic: str) -> None:
    alter_topic(instance, topic, 3, {})
    fewer = alter_topic(instance, topic, 1, {"ordering_on_change": "none"})
    assert (fewer.generations, fewer.writable_partitions, fewer.partitions) == ((0, 2), 1, 5)
    assert states(instance, topic) == ["draining", "draining", "active", "draining", "draining"]
    refused(CLOSED, partial(send, instance, topic, "a", partition=3))
    alter_topic(instance, topic, 4, {})
    assert states(instance, topic) == ["draining"] * 2 + ["active"] * 4
    assert send(instance, topic, "a", partition=3) == appended(0, 1)


@pytest.mark.parametrize("call", range(10))
def test_alteration_that_dies_is_ended_by_an_append_that_is_refused(instance: Instance, topic: str, call: int) -> None:
    with catch_kill():
        alter_topic(killed_at(instance, call, is_applied=True), topic, 3, {})
    has_begun = instance.topic_cache.read_through(topic).layout == 1
    for number in (0, 1):
        if head_of(instance, topic, number).is_closed:
            refused(CLOSED, partial(send, instance, topic, "a", partition=number))
            assert instance.topic_cache.read_through(topic).generations == (0, 2)
    assert alter_topic(instance, topic, 3, {}).generations == (0, 2)
    assert [head_of(instance, topic, number).is_closed for number in range(5)] == [True] * 2 + [False] * 3
    assert has_begun or call <= 1


def test_retention_ends_an_alteration_that_died(instance: Instance, topic: str) -> None:
    with catch_kill():
        alter_topic(killed_at(instance, 2, is_applied=True), topic, 3, {})
    retain(instance, budget_ms=60_000.0)
    assert instance.topic_cache.read_through(topic).generations == (0, 2)


@pytest.mark.parametrize("call", range(1, 8))
def test_late_helper_changes_nothing_when_a_later_generation_is_open(instance: Instance, topic: str, call: int) -> None:
    before = instance.topic_cache.read_through(topic)
    instance.stores.topics.replace(before, before.with_opening(3))

    def others() -> None:
        alter_topic(instance, topic, 3, {})
        send(instance, topic, "a", partition=2)
        alter_topic(instance, topic, 1, {})

    assert open_generation(interrupted_before(instance, call, others), topic).generations == (0, 2, 5)
    assert send(instance, topic, "b", partition=5) == appended(0, 1)
    assert read_all(instance, topic, 2) == [(0, "a")]


def test_change_is_refused_when_the_numbers_run_out(instance: Instance, topic: str) -> None:
    error = refused(ErrorCode.INVALID_REQUEST, partial(alter_topic, instance, topic, TOPIC_PARTITIONS_MAX - 1, {}))
    assert "with those of older generations" in error.message
    assert instance.topic_cache.read_through(topic).layout == 0


def test_setting_is_refused_when_it_is_neither_none_nor_wait(instance: Instance, topic: str) -> None:
    refused(ErrorCode.INVALID_CONFIG, partial(alter_topic, instance, topic, None, {"ordering_on_change": "perhaps"}))


def test_waiting_topic_cannot_be_compacted(instance: Instance, topic: str) -> None:
    compact = {"cleanup_policy": "compact"}
    refused(ErrorCode.INVALID_CONFIG, partial(alter_topic, instance, topic, None, compact))
    refused(
        ErrorCode.INVALID_CONFIG, partial(create_topic, instance, "other", 1, {**compact, "ordering_on_change": "wait"})
    )
    new_topic(instance, "compacted", cleanup_policy="compact")
    refused(ErrorCode.INVALID_CONFIG, partial(alter_topic, instance, "compacted", None, {"ordering_on_change": "wait"}))
    alter_topic(instance, topic, 3, {})
    refused(
        ErrorCode.INVALID_CONFIG, partial(alter_topic, instance, topic, None, {"ordering_on_change": "none"} | compact)
    )
    assert alter_topic(instance, "compacted", 2, {}).partitions == 2


def test_refused_append_may_be_tried_again_when_storage_fails_while_a_generation_opens(
    instance: Instance, topic: str
) -> None:
    with catch_kill():
        alter_topic(killed_at(instance, 4, is_applied=True), topic, 3, {})
    assert head_of(instance, topic, 0).is_closed

    def fail(*_: object) -> None:
        raise UNAVAILABLE

    broken = another_instance(instance, topics=Intercepted(instance.stores.topics, open_generation=fail))
    refused(ErrorCode.STORAGE_UNAVAILABLE, partial(send, broken, topic, "a", partition=0))
    refused(CLOSED, partial(send, instance, topic, "a", partition=0))


def test_generation_opens_although_a_setting_changes_meanwhile(instance: Instance, topic: str) -> None:
    opening = instance.topic_cache.read_through(topic).with_opening(3)
    instance.stores.topics.replace(instance.topic_cache.read_through(topic), opening)
    changed = replace(opening, config=replace(opening.config, retention_ms=7_200_000))
    instance.stores.topics.replace(opening, changed)
    assert open_generation(instance, topic) == changed.with_next_generation()


@pytest.mark.parametrize("call", range(7))
def test_opener_that_slept_brings_no_head_of_a_deleted_topic_back(
    instance: Instance, clock: SteppedClock, topic: str, call: int
) -> None:
    before = instance.topic_cache.read_through(topic)
    opening = before.with_opening(3)
    instance.stores.topics.replace(before, opening)

    def others() -> None:
        delete_topic(instance, topic)
        for _ in range(4):
            clock.time_ms += 2 * LOG_START_GRACE_MS
            retain(another_instance(instance), budget_ms=60_000.0)
        assert not instance.stores.topics.deleted()

    with suppress(PenstockError):
        open_generation(asleep_after(instance, call, others), topic)
    heads = instance.stores.log.heads([PartitionKey(opening.topic_id, Partition(each)) for each in range(5)])
    assert not heads


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
