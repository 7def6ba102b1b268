"""The requests and answers about schedules, from which the OpenAPI document is made."""

from typing import Any

from typing_extensions import TypedDict

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.expiry import check_expiry
from penstock_core.schedules.schedule import Schedule, ScheduledRecord
from penstock_handlers.edge.json_records import header_json, headers_of, key_of, named, value_of
from penstock_handlers.edge.models.request_models import JsonRequest, RecordContent
from penstock_service.schedules.put_schedule import ScheduleWish


class PutSchedule(JsonRequest):
    """A schedule to create, or changes to one. Fields that you leave out stay.

    `cron` has the five fields minute, hour, day, month and weekday, in the local time of `time_zone`. A new schedule is
    enabled, and in UTC.
    """

    cron: str | None = None
    time_zone: str | None = None
    topic: str | None = None
    record: RecordContent | None = None
    enabled: bool | None = None

    def wish(self) -> ScheduleWish:
        """The request as the use case takes it. Raises INVALID_REQUEST for a record that is none."""
        record = None
        if self.record is not None:
            record = ScheduledRecord(
                key=key_of(self.record, "record"),
                value=value_of(self.record, "record"),
                headers=tuple(headers_of(self.record, "record")),
            )
            _check_expiry(record)
        return ScheduleWish(
            cron=self.cron, time_zone=self.time_zone, topic=self.topic, record=record, is_enabled=self.enabled
        )


def _check_expiry(record: ScheduledRecord) -> None:
    try:
        check_expiry(record.headers)
    except PenstockError as error:  # as the route of JSON records tells it
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"record: {error.message}") from error


class ScheduleAnswer(TypedDict):
    """A schedule, its next run and its last one. Times are milliseconds since 1970, null for none.

    `next_ms` is null for a schedule that is not enabled. `last_due_ms` is the time that the last record was due, and
    `last_run_ms` the time of its append; `runs` counts the records. `last_error` tells why the last run failed at
    `last_error_ms`, and is null after one that succeeded. `record` has `key` and `value`, or `key_base64` and
    `value_base64` for bytes that are no text, and `headers`.
    """

    name: str
    schedule_id: str
    created_at_ms: int
    cron: str
    time_zone: str
    topic: str
    topic_id: str
    record: dict[str, Any]
    enabled: bool
    next_ms: int | None
    runs: int
    last_due_ms: int | None
    last_run_ms: int | None
    last_error: str | None
    last_error_ms: int | None


class ScheduleList(TypedDict):
    """One page of the list of schedules; the next starts behind `next_after`."""

    schedules: list[ScheduleAnswer]
    next_after: str | None


def schedule_answer(schedule: Schedule) -> ScheduleAnswer:
    """The schedule as the API shows it."""
    record, last = schedule.record, schedule.last
    return {
        "name": schedule.name,
        "schedule_id": schedule.schedule_id,
        "created_at_ms": schedule.created_at_ms,
        "cron": schedule.times.cron,
        "time_zone": schedule.times.time_zone,
        "topic": schedule.topic,
        "topic_id": schedule.topic_id,
        "record": {
            **named("key", record.key),
            **named("value", record.value),
            "headers": [header_json(name, value) for name, value in record.headers],
        },
        "enabled": schedule.is_enabled,
        "next_ms": schedule.next_ms,
        "runs": last.count,
        "last_due_ms": last.due_ms,
        "last_run_ms": last.run_ms,
        "last_error": last.error or None,
        "last_error_ms": last.error_ms,
    }
