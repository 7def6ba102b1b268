"""The item of a schedule, and the conditional writes of it (docs/protocol/schedules).

```
groups table   pk "#schedules"   sk schedule name
schedule_id    S   another one when the schedule is made anew
version        N   one more with each change of what the caller writes
created_at_ms  N
cron           S   five fields with single spaces
time_zone      S   a name of the IANA database
topic          S   the topic's name
topic_id       S   the id that the name had when the schedule was put
record         M   key B and value B, each missing for none; headers L of L: name S, value B or NULL
next_ms        N   when the next run is due; missing while the schedule is disabled
due_ms         N   when the last record was due; missing before the first
run_ms         N   when it was appended; missing before the first
runs           N   how many records were appended
failure        S   why the last run failed; missing if it succeeded
failed_ms      N   when it failed; missing if it succeeded
```
A run writes the last six alone, on condition of id, version and `next_ms`. A change writes the others on condition of
id and version, and `next_ms` only if it draws a new one. So neither undoes the other.
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import ScheduleId, ScheduleName, TopicId, TopicName
from penstock_core.schedules.schedule import (
    RunNote,
    Schedule,
    ScheduledRecord,
    ScheduleRun,
    Times,
)
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number, rewriting
from penstock_core.storage.keys import SCHEDULES

_IS_SEEN = "schedule_id = :seen_id AND version = :seen_version"
_IS_DUE = f"{_IS_SEEN} AND next_ms = :seen_next"
_NEXT = "next_ms"
_NOTE = ("due_ms", "run_ms", "failure", "failed_ms")


def schedule_key(name: ScheduleName) -> Item:
    """The key of the schedule's item."""
    return {"pk": {"S": SCHEDULES}, "sk": {"S": name}}


def schedule_item(schedule: Schedule) -> Item:
    """The whole item."""
    return {**_written(schedule), **_next_of(schedule), **_note_of(schedule.last)}


def parse_schedule(item: Mapping[str, Any]) -> Schedule:
    """The inverse of `schedule_item`."""
    check_item("schedule", item)
    record = item["record"]["M"]
    return Schedule(
        name=ScheduleName(item["sk"]["S"]),
        schedule_id=ScheduleId(item["schedule_id"]["S"]),
        version=int(item["version"]["N"]),
        created_at_ms=int(item["created_at_ms"]["N"]),
        times=Times(cron=item["cron"]["S"], time_zone=item["time_zone"]["S"]),
        topic=TopicName(item["topic"]["S"]),
        topic_id=TopicId(item["topic_id"]["S"]),
        record=ScheduledRecord(
            key=_bytes(record.get("key")),
            value=_bytes(record.get("value")),
            headers=tuple((name["S"], _bytes(value)) for name, value in (each["L"] for each in record["headers"]["L"])),
        ),
        next_ms=_number(item, _NEXT),
        last=RunNote(
            due_ms=_number(item, "due_ms"),
            run_ms=_number(item, "run_ms"),
            count=int(item["runs"]["N"]),
            error=item["failure"]["S"] if "failure" in item else "",
            error_ms=_number(item, "failed_ms"),
        ),
    )


def schedule_put(schedule: Schedule) -> ConditionalPut:
    """Puts the item if there is none of that name."""
    return ConditionalPut(item=schedule_item(schedule), condition="attribute_not_exists(pk)")


def schedule_update(old: Schedule, new: Schedule) -> ConditionalUpdate:
    """Changes what the caller writes, if the item is still the one of `old`. Runs meanwhile count."""
    item = _written(new)
    if new.next_ms == old.next_ms:
        return rewriting(item, _IS_SEEN, _seen(old))
    return rewriting({**item, **_next_of(new)}, _IS_SEEN, _seen(old), optional=[_NEXT])


def schedule_run(run: ScheduleRun) -> ConditionalUpdate:
    """Notes the run and sets the next one, if no other run or change came before."""
    item = {**schedule_key(run.before.name), **_next_of(run.after), **_note_of(run.after.last)}
    values = {**_seen(run.before), ":seen_next": number(run.before.next_ms or 0)}
    return rewriting(item, _IS_DUE, values, optional=_NOTE)


def schedule_delete(seen: Schedule) -> dict[str, Any]:
    """The arguments of a Delete, if the item is still the schedule that was seen, whatever was changed in it."""
    return {
        "Key": schedule_key(seen.name),
        "ConditionExpression": "schedule_id = :seen_id",
        "ExpressionAttributeValues": {":seen_id": {"S": seen.schedule_id}},
    }


def _written(schedule: Schedule) -> Item:
    """The key, and what a caller writes."""
    record: Item = {
        "headers": {"L": [{"L": [{"S": name}, _value(value)]} for name, value in schedule.record.headers]},
        **({} if schedule.record.key is None else {"key": {"B": schedule.record.key}}),
        **({} if schedule.record.value is None else {"value": {"B": schedule.record.value}}),
    }
    return {
        **schedule_key(schedule.name),
        "schedule_id": {"S": schedule.schedule_id},
        "version": number(schedule.version),
        "created_at_ms": number(schedule.created_at_ms),
        "cron": {"S": schedule.times.cron},
        "time_zone": {"S": schedule.times.time_zone},
        "topic": {"S": schedule.topic},
        "topic_id": {"S": schedule.topic_id},
        "record": {"M": record},
    }


def _next_of(schedule: Schedule) -> Item:
    return {} if schedule.next_ms is None else {_NEXT: number(schedule.next_ms)}


def _note_of(note: RunNote) -> Item:
    times = {"due_ms": note.due_ms, "run_ms": note.run_ms, "failed_ms": note.error_ms}
    return {
        "runs": number(note.count),
        **{name: number(value) for name, value in times.items() if value is not None},
        **({"failure": {"S": note.error}} if note.error else {}),
    }


def _seen(schedule: Schedule) -> Item:
    return {":seen_id": {"S": schedule.schedule_id}, ":seen_version": number(schedule.version)}


def _value(value: bytes | None) -> Item:
    return {"NULL": True} if value is None else {"B": value}


def _bytes(value: Mapping[str, Any] | None) -> bytes | None:
    return bytes(value["B"]) if value is not None and "B" in value else None


def _number(item: Mapping[str, Any], name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None
