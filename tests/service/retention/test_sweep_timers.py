"""Waiting timers keep their segments from the sweep, until they are promoted or cancelled, or their topic is gone."""

from typing import Any

from penstock_core.ids import PartitionKey
from penstock_core.limits import LOG_START_GRACE_MS, SWEEP_GRACE_MS
from penstock_service.adapters.memory.service import MemoryArchiveStore, memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.timers.promote import promote_partition
from penstock_service.timers.promote_due import promote_due
from penstock_service.topics.alter_topic import delete_topic
from tests.service.retention.sweeping import DAY_MS, run, settle
from tests.service.timers.delays import FOREVER_MS, delay, place
from tests.support.interleaving import interrupted_before
from tests.support.service import Intercepted, SteppedClock, key_of, new_topic, read_all, with_stores
from tests.support.timers import waiting


def archived(instance: Instance) -> int:
    archive = instance.stores.archive
    assert isinstance(archive, MemoryArchiveStore)
    return len(archive.segments)


def test_segments_stay_while_their_timers_wait_and_after_the_delivery(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, partitions=2, retention_ms=-1)
    due_ms = clock.now_ms() + 3 * DAY_MS
    for partition in (0, 1):
        delay(instance, topic, due_ms, "waits", partition=partition)
    clock.time_ms += SWEEP_GRACE_MS + DAY_MS
    assert run(instance).deleted == 0
    clock.time_ms = due_ms + 1
    assert run(instance).deleted == 0, "overdue timers wait, too"
    assert promote_due(instance, budget_ms=1_000).promotion.timers == 2
    assert run(instance).deleted == 0
    assert read_all(instance, topic, 1) == [(0, "waits")]


def test_segment_of_a_cancelled_timer_goes(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    due_ms = clock.now_ms() + 30 * DAY_MS
    for number in (0, 1):
        delay(instance, topic, due_ms, "waits", number=number)
    instance.stores.timers.cancel(key_of(instance, topic), place(due_ms, 1), clock.now_ms())
    clock.time_ms += SWEEP_GRACE_MS + 1
    assert run(instance).deleted == 1
    assert archived(instance) == 1


def test_promotion_before_any_call_of_a_sweep_loses_no_segment() -> None:
    """The promoter acts before each storage call of the sweep in turn: a ref moves from its timer to the tail."""
    for number in range(1_200):
        clock = SteppedClock()
        instance = memory_instance(clock=clock)
        topic = new_topic(instance, retention_ms=-1)
        delay(instance, topic, clock.now_ms() + 5, "moves")
        clock.time_ms += SWEEP_GRACE_MS + DAY_MS
        key = key_of(instance, topic)
        was_promoted: list[int] = []

        def promote(instance: Instance = instance, key: PartitionKey = key, calls: list[int] = was_promoted) -> None:
            calls.append(promote_partition(instance, key, 0, FOREVER_MS).timers)

        assert run(interrupted_before(instance, number, promote)).deleted == 0
        assert archived(instance) == 1
        if not was_promoted:
            assert number > 8
            return
        assert was_promoted == [1]
    raise AssertionError("the sweep never comes to its end")


def test_stage_without_timers_reads_no_index_of_them(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance, partitions=3)

    def unread(*_: Any) -> Any:
        raise AssertionError("a stage without timers pays for no such read")

    frugal = with_stores(instance, timers=Intercepted(instance.stores.timers, due_minutes=unread, waiting=unread))
    clock.time_ms += DAY_MS
    assert run(frugal).is_finished
    promoted = promote_due(instance, budget_ms=1_000)
    assert promoted.partitions == 0


def test_deleted_topic_loses_its_timers_and_their_segments(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    key = key_of(instance, topic)
    due_ms = clock.now_ms() + 300 * DAY_MS
    for number in range(3):
        delay(instance, topic, due_ms, "never comes", number=number)
    delete_topic(instance, topic)
    settle(instance, clock)
    clock.time_ms += LOG_START_GRACE_MS
    assert not waiting(instance.stores.timers, key, 0, 10**15, 9)
    assert not instance.stores.topics.deleted()
    clock.time_ms += SWEEP_GRACE_MS + 1
    assert run(instance).deleted == 3
