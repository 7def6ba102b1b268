"""Each run of a schedule appends one record, whatever else happens at the time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SCHEDULE_AGAIN_MS, SCHEDULE_LATE_MS, SCHEDULES_AT_ONCE
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from penstock_core.records.partitioner import partition_for_key
from penstock_core.schedules.schedule import DUE_HEADER, NAME_HEADER, Schedule, ScheduledRecord
from penstock_core.transaction import Move, MoveOutcome
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.instance.instance import Instance
from penstock_service.schedules.put_schedule import ScheduleWish, delete_schedule, find_schedule, put_schedule
from penstock_service.schedules.run_schedules import ScheduleRuns, record_of, run_schedules
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    head_of,
    new_topic,
    read_all,
    with_stores,
)

MINUTE = 60_000
RECORD = ScheduledRecord(key=b"k", value=b"go")


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, partitions=2)


def put(instance: Instance, name: str = "each", *, topic: str = "orders", **record: Any) -> Schedule:
    wish = ScheduleWish(cron="* * * * *", topic=topic, record=replace(RECORD, **record))
    return put_schedule(instance, name, wish)[0]


def run(instance: Instance) -> ScheduleRuns:
    return run_schedules(instance, budget_ms=30_000)


def values(instance: Instance, topic: str = "orders") -> list[str]:
    partitions = instance.topic_cache.read_through(topic).partitions
    return sorted(value for number in range(partitions) for _, value in read_all(instance, topic, number))


def next_minute(clock: SteppedClock, count: int = 1) -> None:
    clock.time_ms = (clock.time_ms // MINUTE + count) * MINUTE


def entries(instance: Instance) -> list[str]:
    return [name for name, _ in instance.telemetry.take()[1]]


@pytest.mark.usefixtures("topic")
def test_run_appends_once_and_again_when_it_is_due_again(instance: Instance, clock: SteppedClock) -> None:
    put(instance)
    assert run(instance).delivered == 0
    next_minute(clock)
    assert run(instance).delivered == 1
    assert run(another_instance(instance)) == ScheduleRuns(messages=2)
    next_minute(clock)
    assert run(instance).delivered == 1
    assert values(instance) == ["go", "go"]
    assert find_schedule(instance, "each").last.count == 2


@pytest.mark.usefixtures("topic")
def test_missed_runs_are_one(instance: Instance, clock: SteppedClock) -> None:
    put(instance)
    next_minute(clock, 7)
    clock.time_ms += 5
    done = run(instance)
    assert (done.delivered, done.late, done.late_ms) == (1, 1, 6 * MINUTE + 5)
    assert done.late_ms > SCHEDULE_LATE_MS
    assert run(instance).delivered == 0
    assert values(instance) == ["go"]


@pytest.mark.usefixtures("topic")
def test_record_has_its_key_and_headers_of_the_run(instance: Instance) -> None:
    made = put(instance, headers=(("a", None),))
    record = record_of(made, 9)
    assert (record.timestamp_ms, record.key, record.value) == (9, b"k", b"go")
    assert [*record.headers] == [("a", None), (NAME_HEADER, b"each"), (DUE_HEADER, str(made.next_ms).encode())]


@pytest.mark.usefixtures("topic")
def test_key_goes_where_a_producer_would_put_it_and_the_name_takes_its_place(
    instance: Instance, clock: SteppedClock
) -> None:
    for number in range(8):
        put(instance, f"a{number}", key=b"%d" % number, value=b"%d" % number)
        put(instance, f"b{number}", key=None, value=b"b%d" % number)
    next_minute(clock)
    assert run(instance).delivered == 16
    for number in range(8):
        for key, value in ((b"%d" % number, f"{number}"), (b"b%d" % number, f"b{number}")):
            partition = partition_for_key(key, 2)
            assert value in [each for _, each in read_all(instance, "orders", partition)]


@pytest.mark.usefixtures("topic")
def test_many_schedules_of_a_partition_share_transactions(instance: Instance, clock: SteppedClock) -> None:
    for number in range(SCHEDULES_AT_ONCE + 1):
        put(instance, f"s{number}", value=b"%d" % number)
    moves: list[int] = []

    def move(original: Any, asked: Move) -> MoveOutcome:
        moves.append(len(asked.runs))
        outcome: MoveOutcome = original(asked)
        return outcome

    next_minute(clock)
    store = Intercepted(instance.stores.transactions, move=move)
    assert run(with_stores(instance, transactions=store)).delivered == SCHEDULES_AT_ONCE + 1
    assert moves == [SCHEDULES_AT_ONCE, 1]


def test_batch_of_many_stays_below_the_bound_of_the_topic(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance, max_batch_bytes=4_096)
    for number in range(6):
        put(instance, f"s{number}", value=b"v" * 1_000)
    next_minute(clock)
    assert run(instance).delivered == 6
    key = instance.topic_cache.get_partition("orders", 0)[1]
    spans = [located.ref.offset_span for located in instance.stores.log.heads([key])[key].located_tail()]
    assert spans == [2, 2, 2]


def test_partition_is_the_one_that_the_key_has_now(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    key = next(b"%d" % each for each in range(99) if partition_for_key(b"%d" % each, 5) == 4)
    put(instance, key=key)
    next_minute(clock)
    assert run(instance).delivered == 1
    alter_topic(another_instance(instance), "orders", 5, {})
    next_minute(clock)
    clock.time_ms += 11_000  # what an instance remembers of a topic
    assert run(instance).delivered == 1
    assert [value for _, value in read_all(instance, "orders", 4)] == ["go"]


def test_partition_that_closed_since_the_topic_was_read_takes_nothing(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance, partitions=2, ordering_on_change="wait")
    for number in range(4):
        put(instance, f"s{number}", key=b"%d" % number, value=b"%d" % number)
    next_minute(clock)
    altered = alter_topic(another_instance(instance), "orders", 5, {})
    assert altered.first_writable == 2
    assert run(instance).delivered == 4  # it remembers the old partitions
    for number in range(4):
        partition = 2 + partition_for_key(b"%d" % number, 5)
        assert f"{number}" in [value for _, value in read_all(instance, "orders", partition)]


@pytest.mark.usefixtures("topic")
def test_two_runs_at_once_append_once(instance: Instance, clock: SteppedClock) -> None:
    for number in range(3):
        put(instance, f"s{number}", value=b"%d" % number)
    next_minute(clock)
    other = another_instance(instance)

    def overtaken(original: Any, end_ms: int) -> Sequence[Schedule]:
        found: Sequence[Schedule] = original(end_ms)
        assert run(other).delivered == 3
        return found

    store = Intercepted(instance.stores.schedules, due=overtaken)
    assert run(with_stores(instance, schedules=store)).refused == 3
    assert values(instance) == ["0", "1", "2"]


@pytest.mark.usefixtures("topic")
def test_schedule_that_was_changed_or_deleted_meanwhile_does_not_hold_up_the_others(
    instance: Instance, clock: SteppedClock
) -> None:
    for number in range(4):
        put(instance, f"s{number}", value=b"%d" % number)
    next_minute(clock)

    def change(original: Any, end_ms: int) -> Sequence[Schedule]:
        found: Sequence[Schedule] = original(end_ms)
        put_schedule(instance, "s0", ScheduleWish(record=replace(RECORD, value=b"new")))
        put_schedule(instance, "s1", ScheduleWish(is_enabled=False))
        delete_schedule(instance, "s2")
        return found

    done = run(with_stores(instance, schedules=Intercepted(instance.stores.schedules, due=change)))
    assert (done.delivered, done.refused, done.failures) == (2, 2, 0)
    assert values(instance) == ["3", "new"]


@pytest.mark.usefixtures("topic")
def test_lost_answer_appends_once(instance: Instance, clock: SteppedClock) -> None:
    put(instance)
    next_minute(clock)

    def lose(original: Any, asked: Move) -> MoveOutcome:
        original(asked)
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer", maybe_applied=True)

    lossy = with_stores(instance, transactions=Intercepted(instance.stores.transactions, move=lose))
    assert run(lossy).failures == 1
    assert run(instance).delivered == 0
    assert values(instance) == ["go"]
    assert find_schedule(instance, "each").last.error == ""


@pytest.mark.usefixtures("topic")
def test_failure_of_storage_leaves_the_run_due_and_tells_why(instance: Instance, clock: SteppedClock) -> None:
    put(instance)
    next_minute(clock)

    def fail(*_: Any) -> MoveOutcome:
        raise UNAVAILABLE

    failing = with_stores(instance, transactions=Intercepted(instance.stores.transactions, move=fail))
    assert run(failing).failures == 1
    assert find_schedule(instance, "each").last.error == UNAVAILABLE.message
    assert entries(failing) == ["schedule_postponed"]
    assert run(instance).delivered == 1
    assert find_schedule(instance, "each").last.error == ""


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.usefixtures("topic")
def test_record_of_a_topic_that_is_gone_never_comes(
    instance: Instance, clock: SteppedClock, is_made_anew: bool
) -> None:
    put(instance)
    new_topic(instance, "other")
    put(instance, "neighbour", topic="other")
    operator = another_instance(instance)
    delete_topic(operator, "orders")
    if is_made_anew:
        new_topic(operator)
    next_minute(clock)
    assert run(instance) == ScheduleRuns(delivered=1, given_up=1, messages=2)
    gone = find_schedule(instance, "each")
    assert "orders" in gone.last.error
    assert gone.next_ms == clock.time_ms + MINUTE
    assert entries(instance) == ["schedule_failed"]
    assert values(instance, "other") == ["go"]
    if is_made_anew:
        assert values(instance) == []
        put(instance)
        next_minute(clock)
        assert run(instance).delivered == 2
        assert values(instance) == ["go"]


@pytest.mark.usefixtures("topic")
def test_record_that_the_topic_takes_no_more_is_given_up(instance: Instance, clock: SteppedClock) -> None:
    put(instance, value=b"v" * 2_000)
    alter_topic(instance, "orders", None, {"max_batch_bytes": 1_024})
    next_minute(clock)
    assert run(instance).given_up == 1
    assert "2001 bytes" in find_schedule(instance, "each").last.error


@pytest.mark.usefixtures("topic")
def test_note_that_cannot_be_written_leaves_the_run_due(instance: Instance, clock: SteppedClock) -> None:
    put(instance)
    delete_topic(instance, "orders")
    next_minute(clock)

    def fail(*_: Any) -> bool:
        raise UNAVAILABLE

    failing = with_stores(instance, schedules=Intercepted(instance.stores.schedules, note=fail))
    assert run(failing).failures == 1
    assert run(instance).given_up == 1


@pytest.mark.usefixtures("topic")
def test_run_whose_time_is_over_leaves_the_rest_to_the_next(instance: Instance, clock: SteppedClock) -> None:
    put(instance)
    next_minute(clock)
    assert run_schedules(instance, budget_ms=0).failures == 1
    assert run(instance).delivered == 1


@pytest.mark.usefixtures("topic")
def test_run_of_a_minute_sends_two_messages_for_what_is_due_soon_and_a_message_none(
    instance: Instance, clock: SteppedClock
) -> None:
    next_minute(clock)
    clock.time_ms += 1_000
    put(instance)
    put(instance, "other")
    due_s = (clock.time_ms // MINUTE + 1) * 60
    runner = another_instance(instance)
    taken(instance)
    assert run_schedules(runner, budget_ms=9, is_each_minute=False).messages == 0
    assert run(runner).messages == 2
    assert taken(instance) == [(due_s, 59_000), (due_s + SCHEDULE_AGAIN_MS // 1_000, 63_000)]
    assert run(runner).messages == 0  # it has sent them


@pytest.mark.usefixtures("topic")
def test_run_that_comes_when_a_time_is_due_announces_the_next_one(instance: Instance, clock: SteppedClock) -> None:
    put(instance)
    next_minute(clock)
    taken(instance)
    done = run(instance)
    assert (done.delivered, done.messages) == (1, 2)
    due_s = (clock.time_ms // MINUTE + 1) * 60
    assert [second for second, _ in taken(instance)] == [due_s, due_s + 4]


def taken(instance: Instance) -> list[tuple[int, int]]:
    """The messages since the last call: the second and the delay of each."""
    triggers = instance.stores.timer_triggers
    assert isinstance(triggers, MemoryTimerTriggers)
    found = [(second.second, wait_ms) for second, wait_ms in triggers.seconds]
    triggers.seconds.clear()
    return found


@pytest.mark.parametrize("rule_at_ms", [0, 20_000, 50_000, 59_900])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.usefixtures("topic")
def test_messages_do_not_breed_in_an_hour(
    instance: Instance, clock: SteppedClock, copies: int, rule_at_ms: int
) -> None:
    """One invocation for each message, and the queue gives each message `copies` times. Each run is an instance."""
    next_minute(clock)
    clock.time_ms += 1
    put(instance)
    starts = sorted((clock.time_ms - 1 + number * MINUTE + rule_at_ms, True) for number in range(60))
    end_ms = clock.time_ms - 1 + 60 * MINUTE
    messages = delivered = by_messages = 0
    while starts:
        for second, _ in taken(instance):
            messages += 1
            assert messages <= 1 + 2 * 2 * 60
            starts += [(second * 1_000, False)] * copies
        starts.sort()
        at_ms, is_each_minute = starts.pop(0)
        if at_ms >= end_ms:
            continue
        clock.time_ms = max(clock.time_ms, at_ms)
        done = run_schedules(another_instance(instance), budget_ms=30_000, is_each_minute=is_each_minute)
        delivered += done.delivered
        by_messages += not is_each_minute
        assert done.late_ms <= 100
    assert delivered == 59
    assert by_messages <= copies * messages


@pytest.mark.parametrize(("headers", "may_expire"), [((), False), (((EXPIRES_AT_HEADER, b"1790000000000"),), True)])
@pytest.mark.usefixtures("topic")
def test_batch_of_a_record_that_expires_has_the_flag(
    instance: Instance, clock: SteppedClock, headers: tuple[tuple[str, bytes]], may_expire: bool
) -> None:
    put(instance, headers=headers)
    next_minute(clock)
    assert run(instance).delivered == 1
    partition = partition_for_key(b"k", 2)
    assert [ref.may_expire for ref in head_of(instance, "orders", partition).tail] == [may_expire]
