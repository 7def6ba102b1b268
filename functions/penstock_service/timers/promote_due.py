"""Promote due: the run of each minute. It promotes what is overdue, and sends messages for what is due next.

The index of due minutes says where to look. A minute leaves the index when no writer puts a timer in it any more, and
none of its timers waits (docs/adr/0039). If a partition has had no head for a day, its topic was deleted: the run
removes the timers that the index leads to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import TIMER_ORPHAN_MS, TIMERS_READ_MAX
from penstock_core.log.timer import MINUTE_MS, DueMinute, DueSecond, PlaceRange, is_minute_over, second_of
from penstock_service.index.heads import waiting_timers
from penstock_service.instance.instance import Instance
from penstock_service.records.timer_room import send_messages
from penstock_service.timers.promote import Promotion, promote_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """The counts of one run: partitions looked at, what was promoted, minutes that left the index, and failures."""

    partitions: int = 0
    promotion: Promotion = field(default_factory=Promotion)
    messages: int = 0
    minutes_forgotten: int = 0
    failures: int = 0

    def plus(self, other: "DueRun") -> "DueRun":
        """The sum of both."""
        return DueRun(
            partitions=self.partitions + other.partitions,
            promotion=self.promotion.plus(other.promotion),
            messages=self.messages + other.messages,
            minutes_forgotten=self.minutes_forgotten + other.minutes_forgotten,
            failures=self.failures + other.failures,
        )


def promote_due(instance: Instance, *, budget_ms: float) -> DueRun:
    """One run over all partitions with due minutes up to the next one, while the time allows.

    16 queries; for each partition what `promote_partition` costs, and 8 queries for each minute of this and the next
    one; 8 queries and a delete for each minute that leaves the index. A partition that fails is counted, and the next
    run meets it again. Raises what reading the index raises.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    now_ms = instance.clock.now_ms()
    minutes = instance.stores.timers.due_minutes(now_ms // MINUTE_MS + 2)
    by_key = [
        list(of_key)
        for _, of_key in groupby(sorted(minutes, key=lambda each: (each.key, each.minute)), lambda m: m.key)
    ]
    total = DueRun(messages=_announce(instance, [each for each in minutes if each.end_ms > now_ms], now_ms))
    for result in instance.executor.map(lambda of_key: _run(instance, of_key, deadline_ms), by_key):
        if isinstance(result, PenstockError):
            instance.telemetry.log("promotion_failed", error=str(result))
            total = total.plus(DueRun(partitions=1, failures=1))
        else:
            total = total.plus(result)
    return total


def _run(instance: Instance, minutes: Sequence[DueMinute], deadline_ms: float) -> DueRun:
    """Looks after one partition; `minutes` are its minutes in the index, in order."""
    key, now_ms = minutes[0].key, instance.clock.now_ms()
    run = DueRun(partitions=1)
    if minutes[0].start_ms > now_ms:
        return run
    over = [each for each in minutes if is_minute_over(each, now_ms)]
    try:
        promotion = promote_partition(instance, key, minutes[0].start_ms, deadline_ms)
    except PenstockError as error:
        if error.code is ErrorCode.MOVED:
            return run
        if error.code is ErrorCode.MIRRORED:
            return run.plus(_forget(instance, over))
        if error.code is not ErrorCode.UNKNOWN_PARTITION:
            raise
        return run.plus(_remove_orphans(instance, key, minutes, now_ms))
    return run.plus(DueRun(promotion=promotion)).plus(_forget(instance, over if promotion.is_finished else ()))


def _forget(instance: Instance, over: Sequence[DueMinute]) -> DueRun:
    """Takes the minutes out of the index in which none waits."""
    forgotten = [each for each in over if _is_empty(instance, each)]
    for each in forgotten:
        instance.stores.timers.forget_minute(each)
    return DueRun(minutes_forgotten=len(forgotten))


def _announce(instance: Instance, minutes: Sequence[DueMinute], now_ms: int) -> int:
    """Sends the messages for timers of these minutes that their writers have not announced. Raises nothing."""

    def seconds_of(minute: DueMinute) -> set[DueSecond]:
        start_ms, seconds, after = max(minute.start_ms, now_ms + 1), set[DueSecond](), None
        while found := waiting_timers(
            instance, minute.key, PlaceRange(start_ms, minute.end_ms, after), TIMERS_READ_MAX
        ):
            unannounced = [each for each in found if not each.is_announced]
            if any(each.is_copy for each in unannounced) and _is_mirrored(instance, minute.key):
                return set()
            seconds |= {second_of(each.place.due_ms, each.key) for each in unannounced}
            after = found[-1].place
        return seconds

    results = instance.executor.map(seconds_of, minutes)
    for error in results.errors:
        instance.telemetry.log("timer_messages_failed", error=str(error))
    seconds = sorted({second for each in results.ok for second in each})
    send_messages(instance, seconds)
    return len(seconds)


def _is_mirrored(instance: Instance, key: PartitionKey) -> bool:
    head = instance.stores.log.heads([key]).get(key)
    return head is not None and bool(head.mirror)


def _is_empty(instance: Instance, minute: DueMinute) -> bool:
    return not waiting_timers(instance, minute.key, PlaceRange(minute.start_ms, minute.end_ms), 1)


def _remove_orphans(instance: Instance, key: PartitionKey, minutes: Sequence[DueMinute], now_ms: int) -> DueRun:
    timers = instance.stores.timers
    forgotten = 0
    for minute in (each for each in minutes if now_ms - each.end_ms > TIMER_ORPHAN_MS):
        while found := waiting_timers(instance, key, PlaceRange(minute.start_ms, minute.end_ms), TIMERS_READ_MAX):
            for timer in found:
                timers.delete(key, timer.place)
        timers.forget_minute(minute)
        forgotten += 1
    return DueRun(minutes_forgotten=forgotten)
