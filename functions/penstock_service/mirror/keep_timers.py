"""Keep copies of the delayed records that wait at the source of a mirror (docs/protocol/mirrors).

A copy is a timer of the mirrored partition, under the place that it has at the source. No promoter delivers it while
the head is a mirror's. It goes with a push of its record, or once the source tells that it waits no more. So the
promotion of the head makes those live that are left.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import MIRROR_TELLING_MS_MAX, MIRROR_TIMERS_OTHERS, MIRROR_TIMERS_READ, TIMER_MS_MAX
from penstock_core.log.timer import PlaceRange, Timer, TimerPlace, is_past, is_repeat
from penstock_core.mirror.push import MirrorPush
from penstock_core.mirror.told_timers import TimersAnswer, TimersTelling
from penstock_service.index.heads import waiting_timers
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.append import PartitionBatches
from penstock_service.records.schedule import DelayedBatches, put_delayed
from penstock_service.records.timer_room import reserve_room, switch_on
from penstock_service.timers.scheduled import overdue_since


def compare_timers(instance: Instance, key: PartitionKey, telling: TimersTelling) -> TimersAnswer:
    """What waits in one of both partitions alone, of the places that the telling compares.

    16 queries, and 8 for each 900 copies. Of more than `MIRROR_TIMERS_OTHERS` copies, those behind are not looked at.
    """
    after, until = telling.after, telling.until
    now_ms = instance.clock.now_ms()
    start_ms = min(overdue_since(instance).get(key, now_ms), now_ms) if after is None else after.due_ms
    places = PlaceRange(start_ms, TIMER_MS_MAX if until is None else until.due_ms + 1, after)
    here: set[TimerPlace] = set()
    listed = telling.listed or ()
    while found := waiting_timers(instance, key, places, MIRROR_TIMERS_READ):
        here |= {each.place for each in found if until is None or each.place <= until}
        places = places._replace(after=found[-1].place)
        if len(here) >= MIRROR_TIMERS_OTHERS:
            listed = [each for each in listed if each <= found[-1].place]
            break
    return TimersAnswer(
        lacks=[each for each in listed if each not in here],
        others=sorted(here - {*listed})[:MIRROR_TIMERS_READ],
    )


def keep_timers(
    instance: Instance,
    window: UpdateWindow,
    key: PartitionKey,
    push: MirrorPush,
    batches: Sequence[PartitionBatches],
) -> TimersAnswer:
    """Puts the copies, and settles what waits no more at the source. It may be repeated, and come late.

    The caller has opened the window before it read the topic. For copies what `schedule` costs; for others a read of
    the head, and a read and an update for each. Raises INVALID_REQUEST for a telling that is too old: the mark of a
    timer that was delivered since may be gone.
    """
    telling, now_ms = push.timers, instance.clock.now_ms()
    assert telling is not None
    if now_ms - telling.read_ms > MIRROR_TELLING_MS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"timers that were read {(now_ms - telling.read_ms) // 1_000} s ago: "
            f"{MIRROR_TELLING_MS_MAX // 1_000} s at most. Tell them anew, and compare the clocks of both stages",
        )
    left = 0
    if telling.copied:
        switch_on(instance)
        delayed = [
            DelayedBatches(batches=each, place=place)
            for each, place in zip(batches, telling.copied, strict=True)
            if _has_room(instance, each.key, place, now_ms)
        ]
        left += len(telling.copied) - len(delayed)
        timers = [replace(each, is_copy=True, is_announced=False) for each in put_delayed(instance, delayed)]
        left += len(timers) - sum(instance.executor.map(lambda it: _is_put(instance, window, it), timers).all_ok())
    if telling.settled:
        left += _settle(instance, window, key, push, telling.settled)
    return TimersAnswer(left=left)


def _has_room(instance: Instance, key: PartitionKey, place: TimerPlace, now_ms: int) -> bool:
    """False for a timer that no writer may put any more, or whose minute is full."""
    if is_past(place.due_ms, now_ms):
        return False
    try:
        reserve_room(instance, key, place.due_ms)
    except PenstockError as error:
        if error.code is not ErrorCode.TOO_MANY_TIMERS:
            raise
        return False
    return True


def _is_put(instance: Instance, window: UpdateWindow, timer: Timer) -> bool:
    window.check()
    return is_repeat(instance.stores.timers.put(timer), timer)


def _settle(
    instance: Instance, window: UpdateWindow, key: PartitionKey, push: MirrorPush, places: Sequence[TimerPlace]
) -> int:
    """Settles the copies, once the log here has all that the source had delivered when it read them.

    Gives how many were left.
    """
    head = instance.stores.log.heads([key]).get(key)
    is_there = (
        head is not None
        and head.mirror == push.mirror
        and (head.log_id == push.log_id or not push.base_offset)  # a log that holds nothing has delivered nothing
        and head.next_offset >= push.base_offset
    )
    if not is_there:
        return len(places)
    window.check()
    now_ms = instance.clock.now_ms()
    instance.executor.map(lambda place: instance.stores.timers.cancel(key, place, now_ms), places).all_ok()
    return 0
