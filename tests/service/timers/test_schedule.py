"""Delayed batches wait in timers: what a put of them checks, writes and sends."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import TIMER_DELAY_MS_MAX, TIMER_MESSAGE_MS_MAX, TIMER_PAST_MS_MAX, TIMERS_PER_MINUTE_MAX
from penstock_core.log.ref import Tier
from penstock_core.log.timer import Timer, minute_of
from penstock_core.records.codec import BatchBuilder
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.absent import MissingTimerTriggers
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce_within_quotas import produce_or_schedule
from penstock_service.records.schedule import ScheduledRecords
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.service.timers.delays import delay, delayed, place, sent
from tests.support.interleaving import catch_kill, killed_at
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Counted,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    entry,
    head_of,
    key_of,
    new_topic,
    with_stores,
)
from tests.support.timers import waiting

MINUTE = 60_000


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, partitions=2)


def test_delayed_batch_waits_in_the_archive_and_not_in_the_log(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 5_000
    answer = delay(instance, topic, due_ms, "a", "b")
    key = key_of(instance, topic)
    assert answer == ScheduledRecords(key=key, place=place(due_ms))
    timer = instance.stores.timers.get(key, place(due_ms))
    assert timer is not None
    assert (timer.ref.tier, timer.ref.zones, timer.ref.record_count) == (Tier.ARCHIVE, 0, 2)
    assert instance.stores.archive.get(timer.ref.segment_id, timer.ref.position, timer.ref.length) == batch("a", "b")
    assert all(zone.get_whole(timer.ref.segment_id) is None for zone in instance.stores.zones)
    assert head_of(instance, topic).next_offset == 0
    assert list(instance.stores.timers.due_minutes(10**6)) == [minute_of(due_ms, key)]


@pytest.mark.parametrize("delay_ms", [MINUTE, 30 * 24 * 60 * MINUTE])
def test_delay_costs_the_two_writes_whatever_its_length(
    instance: Instance, clock: SteppedClock, topic: str, delay_ms: int
) -> None:
    delay(instance, topic, clock.now_ms() + delay_ms, "first of its minute")
    counts: Counter[str] = Counter()
    names = ("timers", "archive", "log", "zone_states", "transactions")
    counted = with_stores(instance, **{name: Counted(getattr(instance.stores, name), name, counts) for name in names})
    for number in (1, 2, 3):
        delay(counted, topic, clock.now_ms() + delay_ms, "next", number=number)
    assert counts == {"archive.put": 3, "timers.put": 3, "timers.reserve": 1}


def test_entries_of_now_and_later_are_answered_in_order(instance: Instance, clock: SteppedClock, topic: str) -> None:
    due_ms = clock.now_ms() + 5_000
    results = produce_or_schedule(
        instance,
        [
            delayed(topic, due_ms, "a"),
            entry(topic, 0, batch("b")),
            delayed(topic, due_ms, "c", number=1),
            delayed("none", due_ms, "d"),
            delayed(topic, due_ms, "e", partition=1),
        ],
        Acks.QUORUM,
    )
    kinds = [each.code if isinstance(each, PenstockError) else type(each) for each in results]
    assert kinds == [ScheduledRecords, AppendedRange, ScheduledRecords, ErrorCode.UNKNOWN_TOPIC, ScheduledRecords]
    assert sent(instance) == [(1_005, 5_000), (1_005, 5_000)], "a message per partition and second"


def test_repeat_finds_its_timer_and_other_bytes_are_refused(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 5_000
    first = delay(instance, topic, due_ms, "a")
    assert delay(another_instance(instance), topic, due_ms, "a") == first
    refused(ErrorCode.TIMER_EXISTS, lambda: delay(instance, topic, due_ms, "b"))
    assert len(waiting(instance.stores.timers, key_of(instance, topic), 0, 10**12, 10)) == 1


def test_due_time_beyond_a_year_is_refused(instance: Instance, clock: SteppedClock, topic: str) -> None:
    error = refused(
        ErrorCode.INVALID_REQUEST, lambda: delay(instance, topic, clock.now_ms() + TIMER_DELAY_MS_MAX + 1, "a")
    )
    assert "365 days" in error.message
    assert delay(instance, topic, clock.now_ms() + TIMER_DELAY_MS_MAX, "a")


def test_small_past_counts_as_now_and_a_larger_one_is_refused_unless_it_repeats(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() - TIMER_PAST_MS_MAX
    first = delay(instance, topic, due_ms, "a")
    assert sent(instance) == [(due_ms // 1_000, 0)]
    clock.time_ms += 1
    assert delay(instance, topic, due_ms, "a") == first
    refused(ErrorCode.TIMER_EXISTS, lambda: delay(instance, topic, due_ms, "b"))
    error = refused(ErrorCode.INVALID_REQUEST, lambda: delay(instance, topic, due_ms, "a", number=1))
    assert "15 minutes" in error.message


def test_batch_with_a_sequence_is_refused(instance: Instance, clock: SteppedClock, topic: str) -> None:
    numbered = BatchBuilder(batch_bytes=1_000)
    numbered.append(1, None, b"a", [])
    data = numbered.build(producer_id=7, producer_epoch=0, base_sequence=0)
    wrong = replace(delayed(topic, clock.now_ms(), "a"), data=bytes(data))
    [error] = produce_or_schedule(instance, [wrong], Acks.QUORUM)
    assert isinstance(error, PenstockError)
    assert (error.code, "sequence" in error.message) == (ErrorCode.INVALID_REQUEST, True)


def test_same_timer_twice_in_one_request_is_refused(instance: Instance, topic: str) -> None:
    twice = [delayed(topic, 5, "a"), delayed(topic, 5, "b")]
    refused(ErrorCode.INVALID_REQUEST, lambda: produce_or_schedule(instance, twice, Acks.QUORUM))


def test_too_many_timers_of_a_minute_are_refused(instance: Instance, clock: SteppedClock, topic: str) -> None:
    due_ms = clock.now_ms() + 5_000
    instance.stores.timers.reserve(minute_of(due_ms, key_of(instance, topic)), TIMERS_PER_MINUTE_MAX)
    error = refused(ErrorCode.TOO_MANY_TIMERS, lambda: delay(instance, topic, due_ms, "a"))
    assert "90,000" in error.message
    assert delay(instance, topic, due_ms + MINUTE, "a")


def test_lost_answer_of_a_put_is_harmless(instance: Instance, clock: SteppedClock, topic: str) -> None:
    due_ms = clock.now_ms() + 5_000

    def lost(put: object, timer: object) -> object:
        put(timer)  # type: ignore[operator]
        raise LOST_ANSWER

    unlucky = with_stores(instance, timers=Intercepted(instance.stores.timers, put=lost))
    with pytest.raises(PenstockError) as caught:
        delay(unlucky, topic, due_ms, "a")
    assert caught.value.maybe_applied
    delay(instance, topic, due_ms, "a")
    assert len(waiting(instance.stores.timers, key_of(instance, topic), 0, 10**12, 10)) == 1


def test_late_put_is_not_sent(instance: Instance, clock: SteppedClock, topic: str) -> None:
    """The sweep takes a segment without a name for garbage a day later: a slept process may not name it then."""

    def slow(put: object, *arguments: object) -> object:
        clock.time_ms += 24 * 60 * MINUTE
        return put(*arguments)  # type: ignore[operator]

    sleepy = with_stores(instance, archive=Intercepted(instance.stores.archive, put=slow))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: delay(sleepy, topic, clock.now_ms() + 5_000, "a"))
    assert not waiting(instance.stores.timers, key_of(instance, topic), 0, 10**12, 10)


def test_topic_made_anew_gets_the_record(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms() + 1, "old")
    other = another_instance(instance)
    delete_topic(other, topic)
    create_topic(other, topic, 2, {})
    answer = delay(instance, topic, clock.now_ms() + 1, "new")
    assert answer.key == key_of(other, topic)


def test_message_is_sent_once_for_a_second_unless_it_could_come_too_soon(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 5_000
    for number in range(3):
        delay(instance, topic, due_ms - number, "a", number=number)
    assert len(sent(instance)) == 1
    clock.time_ms = due_ms - 499
    delay(instance, topic, due_ms, "late", number=9)
    assert len(sent(instance)) == 2
    delay(another_instance(instance), topic, due_ms, "other", number=10)
    assert len(sent(instance)) == 3


def test_delay_beyond_what_a_message_can_wait_sends_none(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms() + TIMER_MESSAGE_MS_MAX, "a")
    assert sent(instance) == []
    delay(instance, topic, clock.now_ms() + TIMER_MESSAGE_MS_MAX - 1_000, "b")
    assert len(sent(instance)) == 1


def test_triggers_are_switched_on_once_and_noted_before_the_first_timer(instance: Instance, topic: str) -> None:
    noted: list[int | None] = []

    def note(put: Callable[[Timer], Timer], timer: Timer) -> Timer:
        noted.append(instance.stores.timers.switched_on_ms())
        return put(timer)

    hooked = Intercepted(instance.stores.timers, put=note)
    delay(with_stores(instance, timers=hooked), topic, 1_000_000, "a")
    assert noted == [1_000_000]


def test_first_timer_of_a_stage_alone_starts_a_run_at_once(instance: Instance, topic: str) -> None:
    triggers = instance.stores.timer_triggers
    assert isinstance(triggers, MemoryTimerTriggers)
    for number, each in enumerate((instance, instance, another_instance(instance))):
        delay(each, topic, 1_000_000, "a", number=number)
    assert triggers.runs_at_once == 1


def test_first_timer_waits_though_the_run_at_once_cannot_start(instance: Instance, topic: str) -> None:
    def failing(_: object) -> None:
        raise UNAVAILABLE

    unlucky = another_instance(
        instance, timer_triggers=Intercepted(instance.stores.timer_triggers, run_at_once=failing)
    )
    assert delay(unlucky, topic, 1_000_000, "a")
    assert instance.stores.timers.switched_on_ms() is not None


def test_failing_switch_refuses_the_first_timer_of_a_stage_only(instance: Instance, topic: str) -> None:
    def failing(_: object) -> None:
        raise LOST_ANSWER

    unlucky = another_instance(instance, timer_triggers=Intercepted(instance.stores.timer_triggers, switch_on=failing))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: delay(unlucky, topic, 1_000_000, "a"))
    delay(instance, topic, 1_000_000, "b")
    assert delay(unlucky, topic, 1_000_000, "c", number=1)


def test_process_without_triggers_delays_no_record_and_appends_the_others(instance: Instance, topic: str) -> None:
    """The stage has timers already, so a failing switch alone would not refuse it."""
    delay(instance, topic, 1_000_000, "first")
    deaf = another_instance(instance, timer_triggers=MissingTimerTriggers())
    error = refused(ErrorCode.INVALID_REQUEST, lambda: delay(deaf, topic, 1_000_000, "a", number=1))
    assert "PENSTOCK_TIMERS" in error.message
    now, later = produce_or_schedule(
        deaf, [entry(topic, 0, batch("now")), delayed(topic, 1_000_000, "b", number=2)], Acks.QUORUM
    )
    assert isinstance(now, AppendedRange)
    assert isinstance(later, PenstockError)
    assert later.code is ErrorCode.INVALID_REQUEST
    assert waiting(instance.stores.timers, key_of(instance, topic), 0, 10**15, 100) != []


@pytest.mark.parametrize("call", [None, 2])
def test_closed_partition_tells_which_take_delayed_records(
    instance: Instance, clock: SteppedClock, call: int | None
) -> None:
    """Also when the operator died in the middle: the put opens the generation."""
    topic = new_topic(instance, partitions=2, ordering_on_change="wait")
    due_ms = clock.now_ms() + MINUTE
    first = delay(instance, topic, due_ms, "a")
    with catch_kill():
        alter_topic(instance if call is None else killed_at(instance, call, is_applied=True), topic, 3, {})
    error = refused(ErrorCode.PARTITION_CLOSED, lambda: delay(instance, topic, due_ms, "b", number=1))
    assert error.facts == {"writable_partitions": 3, "first_writable_partition": 2}
    assert instance.topic_cache.read_through(topic).generations == (0, 2)
    assert delay(instance, topic, due_ms, "a") == first, "a repeat is answered as the first"
    assert delay(instance, topic, due_ms, "b", number=1, partition=2).key.partition == 2
