"""The run of each minute finds what is overdue, announces what is due next, and keeps the index of minutes small."""

from typing import Any

import pytest

from penstock_core.limits import TIMER_MINUTE_KEPT_MS, TIMER_ORPHAN_MS
from penstock_core.log.delivery import Delivery
from penstock_core.log.timer import minute_of
from penstock_service.instance.instance import Instance
from penstock_service.timers.promote_due import promote_due
from tests.service.timers.delays import delay, sent
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    key_of,
    new_topic,
    read_all,
    with_stores,
)
from tests.support.timers import waiting

MINUTE, DAY = 60_000, 24 * 3_600_000
FAR = 10**9


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, partitions=2)


def values(instance: Instance, topic: str, partition: int = 0) -> list[str]:
    return [value for _, value in read_all(instance, topic, partition)]


def test_overdue_timers_of_all_partitions_are_promoted(instance: Instance, clock: SteppedClock, topic: str) -> None:
    start_ms = clock.now_ms()
    for partition in (0, 1):
        for number in range(4):
            delay(instance, topic, start_ms + number * 10 * MINUTE, str(number), number=number, partition=partition)
    clock.time_ms += 25 * MINUTE
    done = promote_due(another_instance(instance), budget_ms=1_000)
    assert (done.partitions, done.promotion.timers, done.failures) == (2, 6, 0)
    assert [values(instance, topic, partition) for partition in (0, 1)] == [["0", "1", "2"]] * 2
    clock.time_ms += 5 * MINUTE
    assert promote_due(instance, budget_ms=1_000).promotion.timers == 2


def test_year_long_delay_is_announced_before_its_minute_and_delivered(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 365 * DAY
    delay(instance, topic, due_ms, "a")
    clock.time_ms = due_ms - 10 * MINUTE
    assert promote_due(instance, budget_ms=1_000).messages == 0
    clock.time_ms = due_ms - MINUTE
    assert promote_due(instance, budget_ms=1_000).messages == 1
    assert sent(instance) == [(due_ms // 1_000, MINUTE)]
    assert values(instance, topic) == []


def test_timer_that_its_writer_announces_is_not_announced_again(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    delay(instance, topic, clock.now_ms() + 5_000, "a")
    assert promote_due(instance, budget_ms=1_000).messages == 0


def test_minute_stays_in_the_index_while_late_timers_may_come(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms()
    delay(instance, topic, due_ms, "a")
    minute = minute_of(due_ms, key_of(instance, topic))
    clock.time_ms = minute.end_ms + TIMER_MINUTE_KEPT_MS
    assert promote_due(instance, budget_ms=1_000).minutes_forgotten == 0
    clock.time_ms += 1
    assert promote_due(instance, budget_ms=1_000).minutes_forgotten == 1
    assert list(instance.stores.timers.due_minutes(FAR)) == []


def test_minute_with_a_timer_that_waits_is_kept(instance: Instance, clock: SteppedClock, topic: str) -> None:
    due_ms = clock.now_ms()
    delay(instance, topic, due_ms, "a")
    clock.time_ms = minute_of(due_ms, key_of(instance, topic)).end_ms + TIMER_MINUTE_KEPT_MS + 1

    def failing(*_: Any) -> bool:
        raise UNAVAILABLE

    broken = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=failing))
    done = promote_due(broken, budget_ms=1_000)
    assert (done.failures, done.minutes_forgotten) == (1, 0)
    assert promote_due(instance, budget_ms=0).minutes_forgotten == 0, "the time is up before the first timer"
    assert promote_due(instance, budget_ms=1_000).promotion.timers == 1


def test_partition_that_fails_stops_no_other(instance: Instance, clock: SteppedClock, topic: str) -> None:
    for partition in (0, 1):
        delay(instance, topic, clock.now_ms(), "a", partition=partition)
    key = key_of(instance, topic, 0)

    def failing(original: Any, delivery: Delivery) -> object:
        if delivery.key == key:
            raise UNAVAILABLE
        return original(delivery)

    broken = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=failing))
    done = promote_due(broken, budget_ms=1_000)
    assert (done.failures, done.promotion.timers) == (1, 1)
    assert values(instance, topic, 1) == ["a"]


def test_timers_of_a_topic_that_is_gone_are_removed_a_day_later(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms()
    delay(instance, topic, due_ms, "a")
    key = key_of(instance, topic)
    instance.stores.log.delete_head(key)
    clock.time_ms = minute_of(due_ms, key).end_ms + TIMER_ORPHAN_MS
    assert promote_due(instance, budget_ms=1_000).minutes_forgotten == 0
    assert len(waiting(instance.stores.timers, key, 0, FAR, 9)) == 1
    clock.time_ms += 1
    assert promote_due(instance, budget_ms=1_000).minutes_forgotten == 1
    assert not waiting(instance.stores.timers, key, 0, FAR, 9)
    assert list(instance.stores.timers.due_minutes(FAR)) == []
