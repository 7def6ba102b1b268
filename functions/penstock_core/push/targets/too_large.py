"""Records that no delivery to their target can hold: what a function's event, a message or an entry may have. Pure."""

from penstock_core.limits import BUS_BYTES_MAX, PUSH_PAYLOAD_BYTES_MAX, QUEUE_BYTES_MAX
from penstock_core.push.batch import PushBatch
from penstock_core.push.targets.bus_event import bus_event
from penstock_core.push.targets.kafka_event import encode_kafka_event, event_bytes
from penstock_core.push.targets.queue_message import queue_message
from penstock_core.push.targets.target import BusTarget, FunctionTarget, HttpsTarget, QueueTarget, Target

TOO_LARGE = "too_large"  # the begin of the reason of such a dead letter
_ENVELOPE_BYTES_MAX = 1_024


def why_too_large(target: Target, batch: PushBatch) -> str:
    """The reason for which the target can never take the only record of the batch, "" if it can.

    A topic's copies have bounds of theirs. No form of a record is longer than that of an event, and each has the bytes
    of the value at least. So few forms are made.
    """
    [record] = batch.records
    content = record.record
    match target:
        case FunctionTarget() | HttpsTarget():
            bytes_max = PUSH_PAYLOAD_BYTES_MAX
        case QueueTarget():
            bytes_max = QUEUE_BYTES_MAX
        case BusTarget():
            bytes_max = BUS_BYTES_MAX
        case _:
            return ""
    if event_bytes(record) + _ENVELOPE_BYTES_MAX <= bytes_max:
        return ""
    size = len(content.value or b"")
    if size <= bytes_max:
        match target:
            case QueueTarget():
                size = queue_message(record).size_bytes
            case BusTarget():
                size = bus_event(record).size_bytes
            case _:
                size = len(encode_kafka_event(batch))
    return f"{TOO_LARGE}: it has {size:,} bytes or more, and a delivery {bytes_max:,}" if size > bytes_max else ""
