"""The messages that start promotions on time: one per partition and second, sent when the first timer is there.

A message that is not sent, or lost, costs delay and no data: the run each minute finds what is overdue.
"""

from collections.abc import Iterable

from penstock_core.errors import PenstockError
from penstock_core.limits import TIMER_SKEW_MS
from penstock_core.log.timer import DueSecond, Timer, second_of
from penstock_service.instance.instance import Instance


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
