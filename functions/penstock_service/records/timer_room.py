"""What a writer of timers does before its first one: switch the triggers on, and note the due minute in the index.

The messages that start promotions on time: one per partition and second, sent when the first timer is there.

A message that is not sent, or lost, costs delay and no data: the run each minute finds what is overdue.
"""

from collections.abc import Iterable

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import TIMER_SKEW_MS, TIMERS_PER_MINUTE_MAX
from penstock_core.log.timer import DueSecond, Timer, minute_of, second_of
from penstock_service.instance.instance import Instance


def switch_on(instance: Instance) -> None:
    """Switches the triggers of timers on, once in the life of the instance, and notes it for other functions.

    One read and one call. For the first timer of a stage, also a call that starts a run at once, because the pollers of
    messages take a minute to begin, and a put. Raises STORAGE_UNAVAILABLE, and INVALID_REQUEST in a process that has no
    triggers: nothing was scheduled.
    """
    if instance.timer_memory.has_switched_on:
        return
    timers = instance.stores.timers
    is_noted = timers.switched_on_ms() is not None
    try:
        instance.stores.timer_triggers.switch_on()
    except PenstockError as error:
        if not is_noted or error.code is ErrorCode.INVALID_REQUEST:  # a process without triggers delays no record
            hint = ", try again" if error.code.is_retriable else ""
            raise PenstockError(
                error.code, f"{error.message}: nothing was scheduled{hint}", maybe_applied=False
            ) from error
        instance.telemetry.log("timers_switch_failed", error=str(error))  # `retention` looks after the switch
    if not is_noted:
        _run_at_once(instance)
        timers.note_switched_on(instance.clock.now_ms())
    instance.timer_memory.has_switched_on = True


def _run_at_once(instance: Instance) -> None:
    """Raises nothing: without that run, the first timers are late, and the run each minute delivers them."""
    try:
        instance.stores.timer_triggers.run_at_once()
    except PenstockError as error:
        instance.telemetry.log("timers_first_run_failed", error=str(error))


def keep_switched_on(instance: Instance) -> None:
    """Switches the triggers on again if a stage has ever had a timer: a deployment may have reset them.

    One read, and one call if so. Raises nothing: a failure is counted, and the next run tries again.
    """
    try:
        if instance.stores.timers.switched_on_ms() is not None:
            instance.stores.timer_triggers.switch_on()
    except PenstockError as error:
        instance.telemetry.log("timers_switch_failed", error=str(error))


def reserve_room(instance: Instance, key: PartitionKey, due_ms: int) -> None:
    """Makes room for one timer in the minute of its due time.

    One update for the first timer of this instance there, and for each 100 after it. Raises TOO_MANY_TIMERS.
    """
    minute = minute_of(due_ms, key)
    count = instance.timer_memory.take_room(minute)
    if not count:
        return
    if instance.stores.timers.reserve(minute, count) > TIMERS_PER_MINUTE_MAX:
        raise PenstockError(
            ErrorCode.TOO_MANY_TIMERS,
            f"partition {key.partition} has {TIMERS_PER_MINUTE_MAX:,} timers in the minute of {due_ms}, which is the "
            "most: nothing was scheduled. Spread the due times, or give many records the same one",
            limit=TIMERS_PER_MINUTE_MAX,
        )
    instance.timer_memory.add_room(minute, count - 1)


def announce(instance: Instance, timers: Iterable[Timer]) -> None:
    """Sends the messages that these timers need, which are put. Raises nothing: failures are counted.

    One message for each second of a partition, unless this instance has sent it, and it comes later than these puts.
    """
    seconds = {second_of(each.place.due_ms, each.key) for each in timers if each.is_waiting and each.is_announced}
    now_ms = instance.clock.now_ms()
    due = [
        each
        for each in sorted(seconds)
        if not (instance.timer_memory.has_sent(each) and now_ms < each.end_ms - TIMER_SKEW_MS)
    ]
    send_messages(instance, due)


def send_messages(instance: Instance, seconds: Iterable[DueSecond]) -> None:
    """Sends a message for each of these seconds, side by side. Raises nothing: failures are counted."""
    found = list(seconds)
    for second, result in zip(found, instance.executor.map(lambda each: _send(instance, each), found), strict=True):
        if isinstance(result, PenstockError):
            instance.telemetry.log("timer_messages_failed", partition=str(second.key), error=str(result))


def _send(instance: Instance, second: DueSecond) -> bool:
    instance.stores.timer_triggers.announce(second, max(0, second.end_ms - instance.clock.now_ms()))
    instance.timer_memory.note_sent(second)
    return True
