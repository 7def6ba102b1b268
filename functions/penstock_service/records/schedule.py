"""Schedule: put delayed batches into the archive, and let their refs wait in timers (docs/adr/0039).

```
 switch triggers on (once)  ▶ reserve room in the due minutes  ▶ put the segment  ▶ put the timers  ▶ send messages
```
A crash between two steps leaves an object that nothing names, or a note without timers. A crash after the timers leaves
a message that was not sent: the run each minute promotes what is overdue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, PartitionKey, new_segment_id
from penstock_core.log.index import partition_closed
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.retention import indexed_ms
from penstock_core.log.segment import SegmentPart, build_segment
from penstock_core.log.timer import (
    Timer,
    TimerPlace,
    check_due,
    is_announceable,
    is_past,
    is_repeat,
    past_due,
    timer_exists,
)
from penstock_core.outcomes import Outcome, Outcomes, errors_maybe_applied
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.append import PartitionBatches
from penstock_service.records.timer_room import announce, reserve_room, switch_on


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedBatches:
    """Validated batches of one partition that share a due time, and the place of their timer."""

    batches: PartitionBatches
    place: TimerPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRecords:
    """The records wait in the timer at `place`, or have waited there."""

    key: PartitionKey
    place: TimerPlace


def schedule(instance: Instance, window: UpdateWindow, delayed: Sequence[DelayedBatches]) -> Outcomes[ScheduledRecords]:
    """Lets each of the batches wait for its due time. They succeed or fail one by one. One outcome each, in order.

    Open the window before you read the topics. No timer is put once it is over: a due minute is forgotten some time
    after it, and a partition that drains may go (docs/protocol/timers).

    One put of a segment into the archive; for each timer one conditional put; one update of the index for the first
    timers of a minute and partition; one message for the first timers of a second, if it is within 15 minutes. An
    outcome is INVALID_REQUEST for a due time that is too far ahead, or past and no repeat, TIMER_EXISTS for an id that
    has other records, TOO_MANY_TIMERS, STORAGE_UNAVAILABLE once the window is over, or PARTITION_CLOSED for a partition
    that drains, unless it repeats an earlier put. Raises STORAGE_UNAVAILABLE when nothing was scheduled, and
    INVALID_REQUEST if this process has no triggers of timers.
    """
    switch_on(instance)
    repeats: dict[int, Outcome[ScheduledRecords]] = {}
    for index, each in enumerate(delayed):
        if each.batches.is_draining or is_past(each.place.due_ms, instance.clock.now_ms()):
            repeats[index] = _earlier(instance, each)
    ready = Outcomes.collect(
        lambda index: _made_ready(instance, delayed[index]), [at for at in range(len(delayed)) if at not in repeats]
    )
    done = iter(ready.map_all_ok(lambda each: _put(instance, window, each)))
    return Outcomes([repeats[at] if at in repeats else next(done) for at in range(len(delayed))])


def put_delayed(instance: Instance, delayed: Sequence[DelayedBatches]) -> list[Timer]:
    """Puts one segment with all the batches into the archive. Gives a timer for each, to be put within a window.

    The caller has opened the window, before it read the topics. One put. Raises STORAGE_UNAVAILABLE.
    """
    now_ms = instance.clock.now_ms()
    segment_id = new_segment_id(now_ms, instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    segment = build_segment([_part(each.batches) for each in delayed])
    instance.stores.archive.put(segment_id, segment.body, segment.crc32c)
    return [
        Timer(
            key=each.batches.key,
            place=each.place,
            ref=Ref(
                segment_id=segment_id,
                position=entry.position,
                length=entry.length,
                offset_span=each.batches.summary.offset_span,
                record_count=each.batches.summary.record_count,
                max_timestamp_ms=indexed_ms(each.batches.summary.max_timestamp_ms, segment_id),
                zones=0,
                tier=Tier.ARCHIVE,
                tag_filter=each.batches.tag_filter,
                may_expire=each.batches.may_expire,
            ),
            crc=crc32c(bytes(each.batches.data)),
            is_announced=is_announceable(each.place.due_ms, now_ms),
        )
        for each, entry in zip(delayed, segment.toc, strict=True)
    ]


def _earlier(instance: Instance, each: DelayedBatches) -> Outcome[ScheduledRecords]:
    """The answer to a put that comes too late, or after its partition was closed. One read.

    It is right only if it repeats a put that came in time.
    """
    key, summary = each.batches.key, each.batches.summary
    try:
        with errors_maybe_applied():
            stored = instance.stores.timers.get(key, each.place)
    except PenstockError as error:
        return error
    if stored is None and each.batches.is_draining:
        return partition_closed(key)
    if stored is None:
        return past_due(each.place.due_ms, instance.clock.now_ms())
    is_same = (stored.crc, stored.ref.offset_span) == (crc32c(bytes(each.batches.data)), summary.offset_span)
    return ScheduledRecords(key=key, place=each.place) if is_same else timer_exists(stored)


def _made_ready(instance: Instance, each: DelayedBatches) -> DelayedBatches:
    check_due(each.place.due_ms, instance.clock.now_ms())
    reserve_room(instance, each.batches.key, each.place.due_ms)
    return each


def _put(instance: Instance, window: UpdateWindow, delayed: Sequence[DelayedBatches]) -> Outcomes[ScheduledRecords]:
    timers = put_delayed(instance, delayed)
    stored = instance.executor.map(lambda timer: _put_timer(instance, window, timer), timers)
    announce(instance, stored.ok)
    return stored.map_ok(lambda timer: ScheduledRecords(key=timer.key, place=timer.place))


def _put_timer(instance: Instance, window: UpdateWindow, timer: Timer) -> Timer:
    """The timer that is stored: this one, or its earlier try. Raises TIMER_EXISTS."""
    window.check()
    stored = instance.stores.timers.put(timer)
    if not is_repeat(stored, timer):
        raise timer_exists(timer)
    return stored


def _part(batches: PartitionBatches) -> SegmentPart:
    return SegmentPart(
        topic_id=batches.key.topic_id,
        partition=batches.key.partition,
        data=(batches.data,),
        offset_span=batches.summary.offset_span,
        max_timestamp_ms=batches.summary.max_timestamp_ms,
    )
