"""Drained partitions go, and only those: with their records expired, their timers delivered, and time passed."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.limits import DRAIN_MS_MIN, LOG_START_GRACE_MS, UNLIMITED
from penstock_core.share.acknowledge import AckResult
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.describe_topic import describe_topic
from tests.service.share.sharing import finish
from tests.service.timers.delays import delay
from tests.support.refusals import refused
from tests.support.service import SteppedClock, appended, head_of, key_of, new_topic, read_all, send

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
