"""Set aside: a record that no delivery to its target can hold goes to the dead letters at once, or is passed over."""

from dataclasses import replace

from penstock_core.ids import Offset, TopicName
from penstock_core.push.batch import PushRecord
from penstock_core.push.delivery import DeliveryKey, DeliveryState, Trouble, skip
from penstock_service.push.bury import bury
from penstock_service.push.lane_work import LaneWork, overtaken


def set_aside(
    work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState, record: PushRecord, why: str
) -> DeliveryState:
    """The state behind the record, which is the first one. Costs what `bury` costs; one write without a topic for it.

    The log line `push_too_large` tells of it, and rings an alarm.
    """
    log_too_large(work, record, why)
    end = Offset(record.record.offset + 1)
    if work.subscription.config.dead_letter_topic is not None:
        told = Trouble(first_failed_ms=work.instance.clock.now_ms(), range_end=end, error=why)
        return bury(work, place, replace(state, trouble=told), [record], end)
    new = skip(state, end)
    if work.instance.stores.push.put_delivery(place[1], new) != new:
        raise overtaken(place[1])
    return new


def log_too_large(work: LaneWork, record: PushRecord, why: str) -> None:
    """Tell which record the target never gets."""
    work.instance.telemetry.log(
        "push_too_large",
        subscription=work.subscription.name,
        partition=str(record.key),
        offset=record.record.offset,
        error=why,
    )
