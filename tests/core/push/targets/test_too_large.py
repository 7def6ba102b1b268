"""What a target can never take, by its own bound."""

import pytest

from penstock_core.ids import TopicName
from penstock_core.limits import BUS_BYTES_MAX, PUSH_PAYLOAD_BYTES_MAX, QUEUE_BYTES_MAX
from penstock_core.push.targets.bus_event import bus_event
from penstock_core.push.targets.kafka_event import encode_kafka_event
from penstock_core.push.targets.queue_message import queue_message
from penstock_core.push.targets.target import (
    TOO_LARGE,
    BusTarget,
    FunctionTarget,
    HttpsTarget,
    QueueTarget,
    Target,
    TopicTarget,
    why_too_large,
)
from tests.support.push_records import StoredRecord, orders

FUNCTION = FunctionTarget(arn="arn:aws:lambda:eu-west-1:123456789012:function:pack")
ENDPOINT = HttpsTarget(url="https://example.com/hook", secret="")
QUEUE = QueueTarget(url="https://sqs.eu-west-1.amazonaws.com/123456789012/pack")
BUS = BusTarget(arn="arn:aws:events:eu-west-1:123456789012:event-bus/orders")
_EMPTY = orders(StoredRecord(0, value=b"x" * 3))
_ROOM = {
    FUNCTION: (PUSH_PAYLOAD_BYTES_MAX - len(encode_kafka_event(_EMPTY))) // 4 * 3 + 3,  # base64
    QUEUE: QUEUE_BYTES_MAX - queue_message(_EMPTY.records[0]).size_bytes + 3,
    BUS: BUS_BYTES_MAX - bus_event(_EMPTY.records[0]).size_bytes + 3,
}


@pytest.mark.parametrize(("target", "room"), [*_ROOM.items(), (ENDPOINT, _ROOM[FUNCTION])])
def test_last_record_that_fits_is_taken_and_the_next_one_is_too_large(target: Target, room: int) -> None:
    assert why_too_large(target, orders(StoredRecord(0, value=b"x" * room))) == ""
    assert why_too_large(target, orders(StoredRecord(0, value=b"x" * (room + 3)))).startswith(TOO_LARGE)


@pytest.mark.parametrize("target", [FUNCTION, ENDPOINT, QUEUE, BUS])
def test_value_that_is_larger_than_the_bound_is_too_large_in_any_form(target: Target) -> None:
    assert why_too_large(target, orders(StoredRecord(0, value=bytes(60 * 1024 * 1024)))).startswith(TOO_LARGE)


def test_copy_to_a_topic_has_the_bound_of_a_batch_only() -> None:
    target = TopicTarget(topic=TopicName("copies"))
    assert why_too_large(target, orders(StoredRecord(0, value=bytes(PUSH_PAYLOAD_BYTES_MAX)))) == ""
