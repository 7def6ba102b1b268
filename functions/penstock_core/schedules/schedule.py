"""A schedule: a record that comes to a topic at the times of a cron expression. Pure (docs/protocol/schedules).

```
 put ──▶ next_ms ──── due: the record's append and the next next_ms, in one transaction ──▶ next_ms ──▶ …
            ├──────── it can never be appended: the error, and the next next_ms ───────────────▲
            └──────── it failed for now: the error, and the same next_ms again
```
A schedule without `next_ms` is disabled. A run is decided by the id, the version and `next_ms` that it has read: of two
runs at one time, one is refused. A change of what is written raises the version, so a run never appends an old record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import (
    Partition,
    PartitionKey,
    ScheduleId,
    ScheduleName,
    TopicId,
    TopicName,
    parse_schedule_name,
)
from penstock_core.limits import SCHEDULE_RECORD_BYTES_MAX, SCHEDULES_MAX
from penstock_core.log.timer import DueSecond
from penstock_core.log.topic import Topic

SCHEDULE_ID_BYTES = 10
NAME_HEADER = "penstock.schedule.name"
DUE_HEADER = "penstock.schedule.due-ms"
# Messages that start runs name a partition that no topic has: a release before schedules finds no head, and passes.
_RUNS = PartitionKey(TopicId("schedules"), Partition(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of the record: `cron` in the local time of `time_zone`."""

    cron: str
    time_zone: str

    def next_ms(self, after_ms: int) -> int:
        """The first run later than `after_ms`."""
        from penstock_core.schedules.cron import next_run_ms  # the library of those that run and write schedules alone

        return next_run_ms(self.cron, self.time_zone, after_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRecord:
    """The record that comes, as the caller gave it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of key, value and headers."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """The last run. Times are milliseconds since 1970, None for none.

    `due_ms` is the time that the last appended record was due, and `run_ms` the time of its append. `error` tells of
    the last run that failed, at `error_ms`; it goes with the next one that succeeds. `count` counts appended records.
    """

    due_ms: int | None = None
    run_ms: int | None = None
    count: int = 0
    error: str = ""
    error_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as it is stored. `next_ms` is the due time of its next run, None if it is disabled."""

    name: ScheduleName
    schedule_id: ScheduleId
    version: int = 1
    created_at_ms: int
    times: Times
    topic: TopicName
    topic_id: TopicId
    record: ScheduledRecord
    next_ms: int | None
    last: RunNote = RunNote()

    @property
    def is_enabled(self) -> bool:
        """True if it runs."""
        return self.next_ms is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """The end of a run: the schedule as it was read, due, and as it is then."""

    before: Schedule
    after: Schedule


def succeeded(schedule: Schedule, now_ms: int) -> ScheduleRun:
    """The run that appends the record at `now_ms`. This one run stands for all that were missed."""
    note = RunNote(due_ms=schedule.next_ms, run_ms=now_ms, count=schedule.last.count + 1)
    return ScheduleRun(before=schedule, after=_moved_on(schedule, now_ms, note))


def failed(schedule: Schedule, now_ms: int, error: str) -> ScheduleRun:
    """The run whose record can never be appended: the next run has its own time."""
    note = replace(schedule.last, error=error, error_ms=now_ms)
    return ScheduleRun(before=schedule, after=_moved_on(schedule, now_ms, note))


def postponed(schedule: Schedule, now_ms: int, error: str) -> ScheduleRun:
    """The run that failed for now: the next one meets the same due time."""
    note = replace(schedule.last, error=error, error_ms=now_ms)
    return ScheduleRun(before=schedule, after=replace(schedule, last=note))


def _moved_on(schedule: Schedule, now_ms: int, note: RunNote) -> Schedule:
    assert schedule.next_ms is not None, "a disabled schedule has no run"
    next_ms = schedule.times.next_ms(max(now_ms, schedule.next_ms))
    return replace(schedule, next_ms=next_ms, last=note)


def check_record(record: ScheduledRecord, topic: Topic) -> None:
    """Raises RECORD_TOO_LARGE, and INVALID_RECORD for a record without a key where the topic is compacted."""
    limit = min(SCHEDULE_RECORD_BYTES_MAX, topic.config.max_batch_bytes)
    if record.size_bytes > limit:
        raise PenstockError(
            ErrorCode.RECORD_TOO_LARGE,
            f"the record has {record.size_bytes} bytes of key, value and headers: use at most {limit}. Store larger "
            "data elsewhere, and schedule its name",
            limit=limit,
        )
    if topic.config.is_compacted and record.key is None:
        raise PenstockError(
            ErrorCode.INVALID_RECORD, f"topic {topic.name!r} is compacted: give the record a key, which compaction asks"
        )


def check_declared_schedule(name: str, cron: str, time_zone: str) -> None:
    """Raises INVALID_NAME and INVALID_REQUEST for a schedule that a template declares."""
    from penstock_core.schedules.cron import parse_cron

    parse_schedule_name(name)
    parse_cron(cron, time_zone, 0)


def runs_of_second(due_ms: int) -> DueSecond:
    """The message that starts the runs of schedules which are due in the second of `due_ms`."""
    return DueSecond(-(-due_ms // 1_000), _RUNS)


def starts_runs(second: DueSecond) -> bool:
    """True if the message starts runs of schedules."""
    return second.key == _RUNS


def new_schedule_id(entropy: bytes) -> ScheduleId:
    """20 lower-case hexadecimal digits from `SCHEDULE_ID_BYTES` random bytes."""
    if len(entropy) != SCHEDULE_ID_BYTES:
        raise ValueError(f"a schedule id takes {SCHEDULE_ID_BYTES} random bytes, got {len(entropy)}")
    return ScheduleId(entropy.hex())


def unknown_schedule(name: str) -> PenstockError:
    """The error for a name that no schedule has."""
    return PenstockError(
        ErrorCode.UNKNOWN_SCHEDULE, f"schedule {shown(name)} does not exist: check its name, or create it"
    )


def too_many_schedules(name: str, count: int) -> PenstockError:
    """The error of a creation beyond the bound of the stage."""
    return PenstockError(
        ErrorCode.TOO_MANY_SCHEDULES,
        f"schedule {name!r} is not created: there are {count} of {SCHEDULES_MAX} that are allowed, delete some",
        limit=SCHEDULES_MAX,
    )


def due_now(schedules: Sequence[Schedule], now_ms: int) -> list[Schedule]:
    """Those with a run that is due, the oldest due time first."""
    due = [each for each in schedules if each.next_ms is not None and each.next_ms <= now_ms]
    return sorted(due, key=lambda each: (each.next_ms or 0, each.name))
