"""What a writer of timers does before its first one: switch the triggers on, and note the due minute in the index."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import TIMERS_PER_MINUTE_MAX
from penstock_core.log.timer import minute_of
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
