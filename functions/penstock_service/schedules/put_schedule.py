"""Create a schedule, change it, delete it, look it up, and list schedules.

A schedule carries its caller's record into a topic for as long as it is there. So its caller needs the right to write
to the topic, when the schedule is made and with each change that may bring records.
"""

from dataclasses import dataclass, replace

from penstock_core.acls.rule import Kind, Operation
from penstock_core.acls.rule_set import UNRESTRICTED, Access
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import ScheduleName, parse_own_topic_name, parse_schedule_name
from penstock_core.limits import SCHEDULE_AHEAD_MS, SCHEDULE_LIST_MAX, SCHEDULES_MAX, TIMER_MS_MAX
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.pages import shown_page
from penstock_core.schedules.schedule import (
    SCHEDULE_ID_BYTES,
    Schedule,
    ScheduledRecord,
    Times,
    check_record,
    new_schedule_id,
    runs_of_second,
    too_many_schedules,
    unknown_schedule,
)
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.timer_room import send_messages, switch_on

UTC_ZONE = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWish:
    """The wish of a caller. None leaves what there is. A new schedule is enabled, and in UTC."""

    cron: str | None = None
    time_zone: str | None = None
    topic: str | None = None
    record: ScheduledRecord | None = None
    is_enabled: bool | None = None

    @property
    def brings_records(self) -> bool:
        """False for a wish that does nothing but disable."""
        return bool(self.is_enabled) or any(
            each is not None for each in (self.cron, self.time_zone, self.topic, self.record)
        )


def find_schedule(instance: Instance, name: str) -> Schedule:
    """The schedule as it is now. One read. Raises INVALID_NAME and UNKNOWN_SCHEDULE."""
    found = instance.stores.schedules.get(parse_schedule_name(name))
    if found is None:
        raise unknown_schedule(name)
    return found


def list_schedules(
    instance: Instance, limit: int, after: str, access: Access = UNRESTRICTED
) -> tuple[list[Schedule], str | None]:
    """One page of the schedules that the caller may describe, by name. One query for each hundred at least."""

    def read(place: str) -> tuple[list[Schedule], str | None]:
        found = [*instance.stores.schedules.list(place, min(limit + 1, SCHEDULE_LIST_MAX))]
        return found, found[-1].name if found else None

    may_see = access.sees(Kind.SCHEDULE)
    return shown_page(read, after, limit, lambda each: may_see(each.name), lambda each: each.name)


def count_failing(instance: Instance) -> int:
    """The number of schedules whose last run failed. One query for each MB of all."""
    return sum(bool(each.last.error) for each in instance.stores.schedules.due(TIMER_MS_MAX))


def put_schedule(
    instance: Instance, name: str, wish: ScheduleWish, access: Access = UNRESTRICTED
) -> tuple[Schedule, bool]:
    """The schedule as it is now, and whether it is new. A repeat changes nothing, and lets runs begin again.

    A change of `cron` or `time_zone`, and enabling, draw the next run anew from now on. With a `topic`, the schedule is
    bound to the topic that has the name now.

    One read, one of the topic, one conditional write, and what `switch_on` costs. A creation counts the schedules, by
    a query for each 100. Raises INVALID_NAME, INVALID_REQUEST, INVALID_RECORD, RECORD_TOO_LARGE, UNKNOWN_TOPIC,
    NOT_AUTHORIZED, TOO_MANY_SCHEDULES, STORAGE_UNAVAILABLE, and CONCURRENT_UPDATE if another change came meanwhile.
    """
    known = parse_schedule_name(name)
    window = UpdateWindow.open(instance.clock)
    found = instance.stores.schedules.get(known)
    check_schedule_rights(access, name, found, wish.topic, brings_records=wish.brings_records)
    wanted = _new(instance, known, wish) if found is None else _altered(instance, found, wish)
    if found is None:
        _check_room(instance, known)
    if wanted.is_enabled:
        switch_on(instance)
    if wanted != found:
        window.check()
        instance.stores.schedules.change(found, wanted)
    if wanted.next_ms is not None and wanted.next_ms < instance.clock.now_ms() + SCHEDULE_AHEAD_MS:
        with errors_maybe_applied(has_begun=wanted != found):
            send_messages(instance, [runs_of_second(wanted.next_ms)])
    return wanted, found is None


def check_schedule_rights(
    access: Access, name: str, found: Schedule | None, topic: str | None, *, brings_records: bool
) -> None:
    """Raises NOT_AUTHORIZED, before any topic is looked up. `topic` is the one that the caller names."""
    access.require(Operation.CREATE if found is None else Operation.ALTER, Kind.SCHEDULE, name)
    topic = found.topic if topic is None and found is not None else topic
    if topic is not None and (found is None or brings_records):
        access.require(Operation.WRITE, Kind.TOPIC, topic)


def delete_schedule(instance: Instance, name: str) -> None:
    """Remove the schedule. None of its records comes later. One read, one conditional delete.

    Raises INVALID_NAME and UNKNOWN_SCHEDULE.
    """
    if not instance.stores.schedules.delete(find_schedule(instance, name)):
        raise unknown_schedule(name)


def _new(instance: Instance, name: ScheduleName, wish: ScheduleWish) -> Schedule:
    if wish.cron is None or wish.topic is None or wish.record is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"schedule {shown(name)} does not exist yet: give cron, topic and record to create it",
        )
    now_ms = instance.clock.now_ms()
    topic = instance.topic_cache.read_through(parse_own_topic_name(wish.topic))
    check_record(wish.record, topic)
    times = _times(wish.cron, UTC_ZONE if wish.time_zone is None else wish.time_zone, now_ms)
    return Schedule(
        name=name,
        schedule_id=new_schedule_id(instance.entropy.random_bytes(SCHEDULE_ID_BYTES)),
        created_at_ms=now_ms,
        times=times,
        topic=topic.name,
        topic_id=topic.topic_id,
        record=wish.record,
        next_ms=None if wish.is_enabled is False else times.next_ms(now_ms),
    )


def _altered(instance: Instance, found: Schedule, wish: ScheduleWish) -> Schedule:
    now_ms = instance.clock.now_ms()
    topic, topic_id, record = found.topic, found.topic_id, wish.record or found.record
    if wish.topic is not None or wish.record is not None:
        now = instance.topic_cache.read_through(parse_own_topic_name(wish.topic or topic))
        check_record(record, now)
        topic, topic_id = now.name, topic_id if wish.topic is None else now.topic_id
    times = found.times
    if wish.cron is not None or wish.time_zone is not None:
        times = _times(wish.cron or times.cron, wish.time_zone or times.time_zone, now_ms)
    is_enabled = found.is_enabled if wish.is_enabled is None else wish.is_enabled
    next_ms = found.next_ms
    if not is_enabled:
        next_ms = None
    elif next_ms is None or times != found.times:
        next_ms = times.next_ms(now_ms)
    altered = replace(found, times=times, topic=topic, topic_id=topic_id, record=record, next_ms=next_ms)
    return altered if altered == found else replace(altered, version=found.version + 1)


def _times(cron: str, time_zone: str, now_ms: int) -> Times:
    from penstock_core.schedules.cron import parse_cron  # the library of those that write schedules alone

    return Times(cron=parse_cron(cron, time_zone, now_ms), time_zone=time_zone)


def _check_room(instance: Instance, name: ScheduleName) -> None:
    """Creations at the same time may exceed the bound by their number."""
    count, after = 0, ""
    while page := instance.stores.schedules.list(after, SCHEDULE_LIST_MAX):
        count, after = count + len(page), page[-1].name
    if count >= SCHEDULES_MAX:
        raise too_many_schedules(name, count)
