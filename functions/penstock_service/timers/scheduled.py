"""Delayed records that wait, as their owners see them: list, and cancel."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import SCHEDULED_PARTITIONS_MAX, TIMER_MS_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.log.timer import (
    MINUTE_MS,
    PlaceRange,
    Timer,
    TimerPlace,
    TimerState,
    parse_scheduled_id,
    scheduled_id,
)
from penstock_core.log.topic import check_own
from penstock_service.index.heads import waiting_timers
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPage:
    """Timers that wait, by partition and due time. Go on behind `next_after`, which is None at the end.

    A page may have few timers, or none, and still have a `next_after`.
    """

    timers: Sequence[Timer]
    next_after: str | None


def list_scheduled(
    instance: Instance, topic_name: str, limit: int, after: str = "", partition: int | None = None
) -> ScheduledPage:
    """One page of a topic's timers that wait, `limit` at most.

    One read of the topic, 17 reads for the place of overdue timers, 8 queries for each of `SCHEDULED_PARTITIONS_MAX`
    partitions at most, and 8 for each further part of the page. Raises UNKNOWN_TOPIC, UNKNOWN_PARTITION and
    INVALID_REQUEST.
    """
    topic = instance.topic_cache.read_through(topic_name)
    if partition is not None:
        instance.topic_cache.get_partition(topic_name, partition)
    start, place = _parse_after(after) if after else (Partition(0), None)
    numbers = [each for each in topic.all_partitions() if each >= start and partition in (None, each)]
    found: list[Timer] = []
    now_ms, first_ms = instance.clock.now_ms(), overdue_since(instance)
    for at, number in enumerate(numbers):
        if at == SCHEDULED_PARTITIONS_MAX:
            return ScheduledPage(timers=found, next_after=f"{number}")
        key = PartitionKey(topic.topic_id, number)
        behind = place if number == start else None
        places = PlaceRange(first_ms.get(key, now_ms), TIMER_MS_MAX, behind)
        while more := waiting_timers(instance, key, places, limit - len(found)):
            found += more
            if len(found) == limit:
                return ScheduledPage(timers=found, next_after=scheduled_id(number, found[-1].place))
            places = places._replace(after=found[-1].place)
    return ScheduledPage(timers=found, next_after=None)


def cancel_scheduled(instance: Instance, topic_name: str, name: str) -> Timer:
    """Cancels the timer of that name. Its records never come. A repeat gives the same answer.

    One read of the topic, one read and one conditional update. Raises UNKNOWN_TOPIC, UNKNOWN_PARTITION and
    INVALID_REQUEST, MOVED for a topic that was moved to its mirror, and MIRRORED for a mirror. Raises UNKNOWN_TIMER if
    there is none, and TIMER_SETTLED if it was delivered.
    """
    partition, place = parse_scheduled_id(name)
    window = UpdateWindow.open(instance.clock)
    check_own(instance.topic_cache.read_through(topic_name))
    _, key = instance.topic_cache.get_partition(topic_name, partition)
    window.check()
    timer = instance.stores.timers.cancel(key, place, instance.clock.now_ms())
    if timer is None:
        raise PenstockError(
            ErrorCode.UNKNOWN_TIMER,
            f"topic {topic_name!r} has no scheduled records {shown(name)}: they were never scheduled, or were "
            "delivered or cancelled more than a day ago",
        )
    if timer.state is TimerState.DELIVERED:
        raise PenstockError(
            ErrorCode.TIMER_SETTLED,
            f"the scheduled records {shown(name)} were delivered at {timer.settled_ms}: nothing was cancelled",
        )
    return timer


def _parse_after(text: str) -> tuple[Partition, TimerPlace | None]:
    if text.isascii() and text.isdigit() and len(text) <= len(str(TOPIC_PARTITIONS_MAX)):
        return Partition(int(text)), None
    return parse_scheduled_id(text)


def overdue_since(instance: Instance) -> dict[PartitionKey, int]:
    """The first due time of timers that are overdue, by partition. It spares a walk over the marks of a day.

    16 queries.
    """
    first_ms: dict[PartitionKey, int] = {}
    for minute in instance.stores.timers.due_minutes(instance.clock.now_ms() // MINUTE_MS + 1):
        first_ms.setdefault(minute.key, minute.start_ms)
    return first_ms
