"""Run schedules: append the records of those that are due, each in one transaction with its next due time.

```
1 query of all    1 put per zone    1 transaction: head of the partition + up to 25 schedules    1 read of the head
```
The run of each minute does it, and messages that it sends for what is due until the next one. So a record comes within
seconds. A run by a message sends none: messages must not breed. Any number of runs may meet: the transaction's
conditions let one of them append (docs/protocol/schedules).

A record that can never be appended, because its topic is gone or does not take it, is noted, and the next run has its
own time. Any other failure leaves the schedule as it is, so the next run meets it again. One run stands for
all that were missed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import SCHEDULE_AGAIN_MS, SCHEDULE_AHEAD_MS, SCHEDULE_LATE_MS, SCHEDULES_AT_ONCE
from penstock_core.log.timer import DueSecond
from penstock_core.log.topic import Topic
from penstock_core.records.codec import NewRecord
from penstock_core.records.expiry import has_expiry
from penstock_core.records.partitioner import partition_for_key
from penstock_core.schedules.schedule import (
    DUE_HEADER,
    NAME_HEADER,
    Schedule,
    ScheduleRun,
    check_record,
    due_now,
    failed,
    postponed,
    runs_of_second,
    succeeded,
)
from penstock_service.index.heads import move_again_if_closed
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.append import is_head_gone
from penstock_service.records.timer_room import send_messages
from penstock_service.share.dead_letters.move_records import MovedRecords, encoded, move_records

_NEVER = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.RECORD_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_NAME,
    )
)
_RECORD_OVERHEAD_BYTES = 1_024  # of the headers that a run adds, and of the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRuns:
    """The counts of one run over the schedules.

    `delivered` records were appended. `refused` runs met another one, or a change. The next run meets the `failures`
    again. `given_up` are those that can never be appended. `late_ms` is the longest time from a due time to its append,
    and `late` counts those that came more than `SCHEDULE_LATE_MS` late.
    """

    delivered: int = 0
    refused: int = 0
    failures: int = 0
    given_up: int = 0
    late: int = 0
    late_ms: int = 0
    messages: int = 0

    def plus(self, other: "ScheduleRuns") -> "ScheduleRuns":
        """The sum of both."""
        return ScheduleRuns(
            delivered=self.delivered + other.delivered,
            refused=self.refused + other.refused,
            failures=self.failures + other.failures,
            given_up=self.given_up + other.given_up,
            late=self.late + other.late,
            late_ms=max(self.late_ms, other.late_ms),
            messages=self.messages + other.messages,
        )


def run_schedules(instance: Instance, *, budget_ms: float, is_each_minute: bool = True) -> ScheduleRuns:
    """Runs what is due now, while the time allows.

    The run of each minute sends messages for what is due soon, two for each due time: the second one comes
    `SCHEDULE_AGAIN_MS` later, and finds what a run that died has left. An instance sends none again. A run by a message
    sends none at all.

    The costs are above: a transaction for each 25 schedules of a partition, and all again for each that is refused.
    Raises what the query raises; what else fails is counted, and noted in the schedule.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    now_ms = instance.clock.now_ms()
    found = instance.stores.schedules.due(now_ms + SCHEDULE_AHEAD_MS)
    messages = _messages(instance, found, now_ms) if is_each_minute else []
    send_messages(instance, messages)
    total = ScheduleRuns(messages=len(messages))
    run, places = _Run(instance, deadline_ms), dict[PartitionKey, list[Schedule]]()
    for each in due_now(found, now_ms):
        try:
            places.setdefault(_partition_of(each, run.topic_of(each)), []).append(each)
        except PenstockError as error:
            total = total.plus(run.give_up(each, error))
    total = total.plus(_sum(instance.executor.map(run.run_partition, [*places.values()]).all_ok()))
    if total.delivered:
        instance.telemetry.count("schedules_delivered", total.delivered)
    return total


def _messages(instance: Instance, schedules: Sequence[Schedule], now_ms: int) -> list[DueSecond]:
    """The seconds of the messages for what is due soon, and behind the runs that are due now."""
    places = {(each.times, each.next_ms) for each in schedules if each.next_ms is not None}
    soon = {next_ms if next_ms > now_ms else times.next_ms(now_ms) for times, next_ms in places}
    seconds = {
        runs_of_second(due_ms + wait_ms)
        for due_ms in soon
        if due_ms < now_ms + SCHEDULE_AHEAD_MS
        for wait_ms in (0, SCHEDULE_AGAIN_MS)
    }
    return sorted(each for each in seconds if not instance.timer_memory.has_sent(each))


def record_of(schedule: Schedule, now_ms: int) -> NewRecord:
    """The record of the run that is due, with headers that name the schedule and the due time."""
    headers = (
        *schedule.record.headers,
        (NAME_HEADER, schedule.name.encode()),
        (DUE_HEADER, str(schedule.next_ms).encode()),
    )
    return NewRecord(now_ms, schedule.record.key, schedule.record.value, headers)


class _Run:
    """One run. It raises nothing: each method gives the counts of what it did."""

    def __init__(self, instance: Instance, deadline_ms: float) -> None:
        self._instance = instance
        self._deadline_ms = deadline_ms

    def topic_of(self, schedule: Schedule) -> Topic:
        """The topic, if it takes the record. A read unless it is remembered. Raises an error of `_NEVER`, or others."""
        topic, _ = self._instance.topic_cache.get_partition(schedule.topic, 0, schedule.topic_id)
        check_record(schedule.record, topic)
        return topic

    def run_partition(self, schedules: Sequence[Schedule]) -> ScheduleRuns:
        """Runs these, which were of one partition, in the order of their due times."""
        total = ScheduleRuns()
        for chunk in _chunks(schedules, self._instance.topic_cache.find(schedules[0].topic)):
            total = total.plus(ScheduleRuns(failures=len(chunk)) if self._is_over else self._run(chunk))
        return total

    def give_up(self, schedule: Schedule, error: PenstockError) -> ScheduleRuns:
        """Notes an error after which the record never comes. After any other one, the next run tries again."""
        if error.code not in _NEVER:
            return self._postpone(schedule, error)
        instance = self._instance
        instance.telemetry.log("schedule_failed", schedule=schedule.name, topic=schedule.topic, error=str(error))
        is_noted = self._note(failed(schedule, instance.clock.now_ms(), error.message))
        return ScheduleRuns(given_up=1) if is_noted else ScheduleRuns(failures=1)

    @property
    def _is_over(self) -> bool:
        return self._instance.clock.monotonic_ms() >= self._deadline_ms

    def _run(self, chunk: Sequence[Schedule], *, is_last: bool = False) -> ScheduleRuns:
        """One transaction. If one of the chunk refuses it, each is tried once more by itself."""
        names = {each.topic for each in chunk}
        try:
            done = move_again_if_closed(self._instance, names, lambda: self._append(chunk))
        except PenstockError as error:
            if is_head_gone(error):  # the next look reads the topics again
                for name in names:
                    self._instance.topic_cache.forget(name)
            if error.maybe_applied or error.code.is_retriable:
                return _sum(self._postpone(each, error) for each in chunk)
            if is_last:
                return self.give_up(chunk[0], error)
        else:
            if done is not None:
                return done
            if is_last:
                return ScheduleRuns(refused=1)
        return _sum(map(self._run_again, chunk))

    def _run_again(self, seen: Schedule) -> ScheduleRuns:
        """Runs one of a chunk that was refused, as it is now. Another run has perhaps had it."""
        if self._is_over:
            return ScheduleRuns(failures=1)
        try:
            schedule = self._instance.stores.schedules.get(seen.name)
        except PenstockError as error:
            return self._postpone(seen, error)
        if schedule is None or not due_now([schedule], self._instance.clock.now_ms()):
            return ScheduleRuns(refused=1)
        return self._run([schedule], is_last=True)

    def _append(self, chunk: Sequence[Schedule]) -> ScheduleRuns | None:
        """None if the transaction was refused."""
        instance, placed = self._instance, dict[PartitionKey, list[NewRecord]]()
        window = UpdateWindow.open(instance.clock)
        now_ms = instance.clock.now_ms()
        topics: dict[PartitionKey, Topic] = {}
        for each in chunk:
            topic = self.topic_of(each)
            key = _partition_of(each, topic)
            topics[key] = topic
            placed.setdefault(key, []).append(record_of(each, now_ms))
        moved = [
            MovedRecords(
                topic=topics[key],
                key=key,
                data=_encoded(records),
                may_expire=any(has_expiry(record.headers) for record in records),
            )
            for key, records in placed.items()
        ]
        outcome = move_records(instance, moved, [succeeded(each, now_ms) for each in chunk], window)
        if not outcome.is_applied:
            return None
        late_ms = [now_ms - each.next_ms for each in chunk if each.next_ms is not None]
        return ScheduleRuns(
            delivered=len(chunk), late_ms=max(late_ms), late=sum(late > SCHEDULE_LATE_MS for late in late_ms)
        )

    def _postpone(self, schedule: Schedule, error: PenstockError) -> ScheduleRuns:
        """Leaves the schedule due, and notes an error that it does not have yet."""
        instance = self._instance
        instance.telemetry.log("schedule_postponed", schedule=schedule.name, topic=schedule.topic, error=str(error))
        if schedule.last.error != error.message:
            self._note(postponed(schedule, instance.clock.now_ms(), error.message))
        return ScheduleRuns(failures=1)

    def _note(self, run: ScheduleRun) -> bool:
        try:
            return self._instance.stores.schedules.note(run)
        except PenstockError as error:  # the next run meets the schedule again
            self._instance.telemetry.log("schedule_postponed", schedule=run.before.name, error=str(error))
            return False


def _sum(runs: Iterable[ScheduleRuns]) -> ScheduleRuns:
    return reduce(ScheduleRuns.plus, runs, ScheduleRuns())


def _encoded(records: Sequence[NewRecord]) -> bytes:
    data = encoded(records)
    assert data, "records of schedules are small"
    return data


def _partition_of(schedule: Schedule, topic: Topic) -> PartitionKey:
    """The partition that the record's key has now. Without a key, the schedule's name takes its place."""
    key = schedule.name.encode() if schedule.record.key is None else schedule.record.key
    number = topic.first_writable + partition_for_key(key, topic.writable_partitions)
    return PartitionKey(topic.topic_id, Partition(number))


def _chunks(schedules: Sequence[Schedule], topic: Topic | None) -> Iterator[Sequence[Schedule]]:
    """The schedules by what one batch of the topic holds."""
    room = 0 if topic is None else topic.config.max_batch_bytes
    chunk: list[Schedule] = []
    size = 0
    for each in schedules:
        more = each.record.size_bytes + _RECORD_OVERHEAD_BYTES
        if chunk and (len(chunk) == SCHEDULES_AT_ONCE or size + more > room):
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += more
    if chunk:
        yield chunk
