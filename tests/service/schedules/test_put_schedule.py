"""Schedules are written on the terms of their topics, and of the rights of their callers."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import parse_rule
from penstock_core.acls.rule_set import Access, PrincipalRules
from penstock_core.errors import ErrorCode
from penstock_core.ids import ScheduleName
from penstock_core.limits import SCHEDULE_LIST_MAX, SCHEDULES_MAX
from penstock_core.schedules.schedule import Schedule, ScheduledRecord
from penstock_service.adapters.absent import MissingTimerTriggers
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.instance.instance import Instance
from penstock_service.schedules.put_schedule import (
    ScheduleWish,
    delete_schedule,
    find_schedule,
    list_schedules,
    put_schedule,
)
from penstock_service.topics.alter_topic import delete_topic
from tests.core.schedules.schedule_samples import PLAIN
from tests.support.refusals import refused
from tests.support.service import Intercepted, SteppedClock, new_topic, with_stores

MINUTE, HOUR = 60_000, 3_600_000
RECORD = ScheduledRecord(key=None, value=b"go")
HOURLY = ScheduleWish(cron="0 * * * *", topic="orders", record=RECORD)
PRINCIPAL = "arn:aws:iam::111122223333:role/ada"


@pytest.fixture(autouse=True)
def topic(instance: Instance) -> str:
    return new_topic(instance, partitions=2)


def put(instance: Instance, name: str = "hourly", **wish: Any) -> Schedule:
    return put_schedule(instance, name, replace(HOURLY, **wish))[0]


def change(instance: Instance, **wish: Any) -> Schedule:
    found, is_new = put_schedule(instance, "hourly", ScheduleWish(**wish))
    assert not is_new
    return found


def triggers(instance: Instance) -> MemoryTimerTriggers:
    found = instance.stores.timer_triggers
    assert isinstance(found, MemoryTimerTriggers)
    return found


def access(*rules: str) -> Access:
    principal = iam_principal(PRINCIPAL)
    parsed = [parse_rule(PRINCIPAL, *each.split()[::-1]) for each in rules]
    return Access(principal=principal, rules=PrincipalRules(parsed, allows_by_default=False, is_super=False))


def test_new_schedule_is_enabled_and_switches_the_triggers_on(instance: Instance, clock: SteppedClock) -> None:
    made, is_new = put_schedule(instance, "hourly", HOURLY)
    assert is_new
    assert made == find_schedule(instance, "hourly")
    assert made.next_ms == (clock.now_ms() // HOUR + 1) * HOUR
    assert (made.times.time_zone, made.topic_id) == ("UTC", instance.topic_cache.get("orders").topic_id)
    assert triggers(instance).is_switched_on


def test_run_that_is_due_soon_is_announced_at_once(instance: Instance, clock: SteppedClock) -> None:
    put(instance, "far")
    assert triggers(instance).seconds == []
    clock.time_ms = (clock.time_ms // HOUR + 1) * HOUR - 30_000
    put(instance, "near")
    assert [delay_ms for _, delay_ms in triggers(instance).seconds] == [30_000]


def test_repeat_changes_nothing(instance: Instance) -> None:
    made = put(instance)
    assert put(instance) == made


def test_change_of_the_record_keeps_the_due_time(instance: Instance, clock: SteppedClock) -> None:
    made = put(instance)
    clock.time_ms += 2 * HOUR
    changed = change(instance, record=replace(RECORD, value=b"other"))
    assert (changed.next_ms, changed.version) == (made.next_ms, made.version + 1)


def test_change_of_the_times_and_enabling_draw_it_anew(instance: Instance, clock: SteppedClock) -> None:
    made = put(instance)
    clock.time_ms += 2 * HOUR
    next_ms = (clock.time_ms // HOUR + 1) * HOUR
    assert change(instance, cron="0  * * * *").next_ms == made.next_ms  # they are the same
    assert change(instance, time_zone="Asia/Kolkata").next_ms == next_ms - HOUR // 2 + (
        HOUR if next_ms - HOUR // 2 <= clock.time_ms else 0
    )
    assert change(instance, is_enabled=False).next_ms is None
    assert change(instance, record=replace(RECORD, value=b"other")).next_ms is None
    clock.time_ms += 5 * HOUR
    enabled = change(instance, is_enabled=True, time_zone="UTC")
    assert enabled.next_ms == (clock.time_ms // HOUR + 1) * HOUR


def test_schedule_that_is_made_disabled_starts_nothing(instance: Instance) -> None:
    assert put(instance, is_enabled=False).next_ms is None
    assert not triggers(instance).is_switched_on


def test_topic_that_was_made_anew_is_bound_by_its_name(instance: Instance) -> None:
    made = put(instance)
    delete_topic(instance, "orders")
    new_topic(instance)
    assert change(instance, record=RECORD).topic_id == made.topic_id
    assert change(instance, topic="orders").topic_id != made.topic_id


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"cron": None}, ErrorCode.INVALID_REQUEST),
        ({"topic": None}, ErrorCode.INVALID_REQUEST),
        ({"record": None}, ErrorCode.INVALID_REQUEST),
        ({"cron": "* * * *"}, ErrorCode.INVALID_REQUEST),
        ({"time_zone": "Berlin"}, ErrorCode.INVALID_REQUEST),
        ({"topic": "missing"}, ErrorCode.UNKNOWN_TOPIC),
        ({"topic": "_audit"}, ErrorCode.INVALID_NAME),
        ({"topic": "a b"}, ErrorCode.INVALID_NAME),
        ({"record": replace(RECORD, value=b"v" * 8_193)}, ErrorCode.RECORD_TOO_LARGE),
    ],
)
def test_bad_wish_is_refused(instance: Instance, wish: dict[str, Any], code: ErrorCode) -> None:
    refused(code, lambda: put(instance, **wish))
    assert list_schedules(instance, 9, "") == ([], None)


def test_bad_name_and_unknown_name_are_refused(instance: Instance) -> None:
    refused(ErrorCode.INVALID_NAME, lambda: put(instance, "a b"))
    refused(ErrorCode.UNKNOWN_SCHEDULE, lambda: find_schedule(instance, "gone"))
    refused(ErrorCode.UNKNOWN_SCHEDULE, lambda: delete_schedule(instance, "gone"))


def test_schedules_are_bounded(instance: Instance) -> None:
    rows = [replace(PLAIN, name=ScheduleName(f"s{number:04}")) for number in range(SCHEDULES_MAX)]

    def some(_original: Any, after: str, limit: int) -> list[Schedule]:
        return [each for each in rows if each.name > after][:limit]

    full = with_stores(instance, schedules=Intercepted(instance.stores.schedules, list=some))
    refused(ErrorCode.TOO_MANY_SCHEDULES, lambda: put(full))
    rows.pop()
    put(full)
    rows.append(PLAIN)
    change(full, is_enabled=False)  # one that is there may be changed


def test_list_has_pages_of_what_the_caller_may_describe(instance: Instance) -> None:
    for number in range(5):
        put(instance, f"s{number}")
    page, after = list_schedules(instance, 2, "")
    assert ([each.name for each in page], after) == (["s0", "s1"], "s1")
    assert [each.name for each in list_schedules(instance, SCHEDULE_LIST_MAX, "s1")[0]] == ["s2", "s3", "s4"]
    mine, _ = list_schedules(instance, 9, "", access("schedule:s3 describe"))
    assert [each.name for each in mine] == ["s3"]


def test_change_that_races_with_another_is_refused(instance: Instance) -> None:
    put(instance)
    original = instance.stores.schedules.change

    def race(_original: Any, old: Schedule, new: Schedule) -> None:
        original(old, replace(old, version=old.version + 1))
        original(old, new)

    racing = with_stores(instance, schedules=Intercepted(instance.stores.schedules, change=race))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: change(racing, is_enabled=False))


@pytest.mark.parametrize("is_new", [True, False])
def test_caller_that_sleeps_before_its_write_changes_nothing(
    instance: Instance, clock: SteppedClock, is_new: bool
) -> None:
    """A run that is drawn before the sleep would be due when it is written."""
    before = None if is_new else put(instance, is_enabled=False)

    def sleep(original: Any, name: str) -> Schedule | None:
        found: Schedule | None = original(name)
        clock.time_ms += 2 * HOUR
        return found

    sleepy = with_stores(instance, schedules=Intercepted(instance.stores.schedules, get=sleep))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: put(sleepy, is_enabled=True))
    assert instance.stores.schedules.get(ScheduleName("hourly")) == before


@pytest.mark.parametrize("rules", [["schedule:hourly create"], ["topic:orders write"], []])
def test_creation_needs_the_schedule_and_the_right_to_write(instance: Instance, rules: list[str]) -> None:
    refused(ErrorCode.NOT_AUTHORIZED, lambda: put_schedule(instance, "hourly", HOURLY, access(*rules)))
    both = access("schedule:hourly create", "topic:orders write")
    assert put_schedule(instance, "hourly", HOURLY, both)[1]


@pytest.mark.parametrize(
    "wish", [{"is_enabled": True}, {"cron": "* * * * *"}, {"time_zone": "UTC"}, {"record": RECORD}, {"topic": "other"}]
)
def test_change_that_may_bring_records_needs_the_right_to_write(instance: Instance, wish: dict[str, Any]) -> None:
    put(instance)
    alters = access("schedule:hourly alter")
    refused(ErrorCode.NOT_AUTHORIZED, lambda: put_schedule(instance, "hourly", ScheduleWish(**wish), alters))
    assert put_schedule(instance, "hourly", ScheduleWish(is_enabled=False), alters)[0].next_ms is None


def test_process_without_triggers_takes_no_schedule(instance: Instance) -> None:
    without = with_stores(instance, timer_triggers=MissingTimerTriggers())
    refused(ErrorCode.INVALID_REQUEST, lambda: put(without))
    refused(ErrorCode.UNKNOWN_SCHEDULE, lambda: find_schedule(without, "hourly"))
