"""Retention of topics that are deleted, or whose creation or alteration died: what is left of them goes.

Drained partitions go, and only those: with their records expired, their timers delivered, and time passed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import DRAIN_MS_MIN, LOG_START_GRACE_MS, TOPIC_PARTITIONS_MAX, UNLIMITED
from penstock_core.log.topic import DeletedTopic
from penstock_core.share.acknowledge import AckResult
from penstock_service.instance.instance import Instance
from penstock_service.retention.remove_topic import RetentionResult
from penstock_service.retention.retain import retain
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.describe_topic import describe_topic
from tests.service.share.sharing import finish
from tests.service.timers.delays import delay
from tests.support.expiring import old_and_new, put
from tests.support.interleaving import catch_kill, killed_at
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


HOUR = 3_600_000


@pytest.fixture
def topic(instance: Instance) -> str:
    name = new_topic(instance, partitions=4, retention_ms=2 * HOUR)
    for partition in range(4):
        send(instance, name, "a", "b", partition=partition)
    return name


def runs(instance: Instance, clock: SteppedClock, count: int = 3) -> int:
    """Some runs of retention, far enough from each other for every note to settle: how many partitions went."""
    retired = 0
    for _ in range(count):
        retired += retain(instance, budget_ms=60_000.0).partitions_retired
        clock.time_ms += 2 * LOG_START_GRACE_MS
    return retired


def partitions(instance: Instance, topic: str) -> tuple[int, int]:
    found, _ = describe_topic(instance.topic_cache, instance.stores.log, topic)
    return found.partitions, found.writable_partitions


def test_partitions_go_once_their_records_have_expired(instance: Instance, clock: SteppedClock, topic: str) -> None:
    alter_topic(instance, topic, 2, {})
    assert runs(instance, clock) == 0
    assert read_all(instance, topic, 3) == [(0, "a"), (1, "b")]
    clock.time_ms += 3 * HOUR
    assert runs(instance, clock) == 2
    assert partitions(instance, topic) == (2, 2)
    refused(ErrorCode.PARTITION_CLOSED, lambda: send(instance, topic, "c", partition=3))
    refused(ErrorCode.UNKNOWN_PARTITION, lambda: send(instance, topic, "c", partition=4))
    assert read_all(instance, topic, 3, offset=2) == [], "a reader that still knows it is at its end"


def test_partitions_go_once_all_readers_have_passed_their_records(instance: Instance, clock: SteppedClock) -> None:
    name = new_topic(instance, partitions=2, retention="acknowledged", retention_ms=UNLIMITED)
    send(instance, name, "a", partition=1)
    put_share_group(instance, "workers", [name], {"start": "earliest"})
    alter_topic(instance, name, 1, {})
    clock.time_ms += 3 * HOUR
    assert runs(instance, clock) == 0, "nobody has had its record"
    acquired = acquire(instance, "workers", AcquireWish(records_max=9, bytes_max=1_000_000))
    assert [each.result for each in finish(instance, acquired)] == [AckResult.OK]
    assert runs(instance, clock) == 1
    assert partitions(instance, name) == (1, 1)


def test_partition_stays_while_it_was_closed_a_short_time_ago_although_it_is_empty(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    alter_topic(instance, topic, 3, {})
    closed_ms = head_of(instance, topic, 3).closed_ms
    truncate(instance, topic, {3: 2})
    assert runs(instance, clock) == 0
    assert closed_ms is not None
    clock.time_ms = closed_ms + DRAIN_MS_MIN - 1
    assert runs(instance, clock, 1) == 0
    clock.time_ms = closed_ms + DRAIN_MS_MIN
    assert runs(instance, clock, 1) == 1


def test_partition_stays_while_a_higher_one_has_records_or_a_timer_waits_for_it(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 24 * HOUR
    delay(instance, topic, due_ms, "later", partition=2)
    alter_topic(instance, topic, 2, {})
    truncate(instance, topic, {2: 2})
    clock.time_ms += HOUR
    assert runs(instance, clock) == 0, "partition 3 has records"
    clock.time_ms += 2 * HOUR
    assert runs(instance, clock) == 1
    assert partitions(instance, topic) == (3, 2)


def test_offsets_go_on_when_the_number_of_a_partition_that_went_rises_again(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    alter_topic(instance, topic, 2, {})
    clock.time_ms += 3 * HOUR
    runs(instance, clock)
    alter_topic(instance, topic, 5, {})
    assert partitions(instance, topic) == (5, 5)
    assert send(instance, topic, "new", partition=3) == appended(2, 3)
    assert read_all(instance, topic, 3, offset=2) == [(2, "new")]
    assert send(instance, topic, "new", partition=4) == appended(0, 1)


def test_head_that_an_alteration_has_left_open_is_closed(instance: Instance, clock: SteppedClock, topic: str) -> None:
    old = instance.topic_cache.read_through(topic)
    instance.stores.topics.replace(old, replace(old, writable=2, layout=1))
    assert not head_of(instance, topic, 3).is_closed
    runs(instance, clock, 1)
    assert head_of(instance, topic, 3).is_closed


def test_heads_of_partitions_that_went_go_with_their_topic(instance: Instance, clock: SteppedClock, topic: str) -> None:
    alter_topic(instance, topic, 2, {})
    clock.time_ms += 3 * HOUR
    runs(instance, clock)
    key = key_of(instance, topic, 3)
    assert key in instance.stores.log.heads([key])
    delete_topic(instance, topic)
    runs(instance, clock)
    assert instance.stores.log.heads([key]) == {}
    assert list(instance.stores.topics.deleted()) == []
