"""The history is told of each storage call of a delivery that fails, and of no other."""

import io

import pytest

from tests.chaos.push.delivery_watch import DeliveryWatch, is_failure
from tests.end_to_end.fault_proxy import Call, Delay, Fault, Reset
from tests.history.model.operations import read_operations
from tests.history.recorder import Recorder

UPDATE = Call(service="dynamodb", operation="UpdateItem")
GET = Call(service="s3", operation="GetObject", bucket="a")
PUT = Call(service="s3", operation="PutObject", bucket="a")


@pytest.mark.parametrize(
    ("status", "body", "is_one"),
    [
        (200, b"", False),
        (400, b'{"__type": "ConditionalCheckFailedException"}', False),
        (400, b'{"__type": "TransactionCanceled", "reasons": ["ConditionalCheckFailed", "None"]}', False),
        (400, b'{"__type": "TransactionCanceled", "reasons": ["ConditionalCheckFailed", "TransactionConflict"]}', True),
        (412, b"<Error><Code>PreconditionFailed</Code></Error>", False),
        (400, b'{"__type": "ThrottlingException"}', True),
        (500, b"", True),
        (503, b"SlowDown", True),
    ],
)
def test_refused_condition_is_no_failure_and_the_rest_is(status: int, body: bytes, is_one: bool) -> None:
    assert is_failure(status, body) == is_one


@pytest.mark.parametrize(
    ("call", "fault", "is_told"),
    [
        (UPDATE, Reset(is_applied=True), True),
        (UPDATE, None, False),
        (UPDATE, Delay(seconds=1), False),
        (GET, Reset(is_applied=False), False),
        (PUT, Reset(is_applied=False), True),
    ],
)
def test_faults_that_may_lose_an_answer_are_told(call: Call, fault: Fault | None, is_told: bool) -> None:
    stream = io.BytesIO()
    watch = DeliveryWatch(lambda _: fault, Recorder(stream))
    assert watch.decide(call) is fault
    watch.told(call, 200, b"")
    assert [each.function for each in read_operations(stream.getvalue().splitlines())] == ["disturb"] * is_told


@pytest.mark.parametrize(("answer", "took_s"), [((400, b"ThrottlingException"), 0.1), ((200, b"{}"), 4.5)])
def test_answer_that_is_an_error_or_late_is_told(answer: tuple[int, bytes], took_s: float) -> None:
    stream, times = io.BytesIO(), iter([0.0, took_s])
    watch = DeliveryWatch(lambda _: None, Recorder(stream), lambda: next(times))
    watch.decide(UPDATE)
    watch.told(UPDATE, *answer)
    [operation] = read_operations(stream.getvalue().splitlines())
    assert (operation.function, operation.group) == ("disturb", None)
