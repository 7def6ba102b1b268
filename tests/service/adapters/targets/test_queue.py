"""SQS queues as targets: what is sent, and what happens to each answer and error."""

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from penstock_core.errors import ErrorCode
from penstock_core.limits import QUEUE_BYTES_MAX
from penstock_core.push.batch import Answered, Failed, Failure, PushBatch
from penstock_core.push.targets.target import QueueTarget
from penstock_service.adapters.targets.queue import SqsQueues
from tests.service.adapters.targets.entry_service import ROLE, FakeEntryService, entry_calls
from tests.support.aws_errors import client_error
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/pack"
TARGET = QueueTarget(url=URL)
BATCH = orders(StoredRecord(15, value=b"one"), StoredRecord(16, value=b"two"), StoredRecord(17, value=b"three"))


def queues(fake: FakeEntryService) -> SqsQueues:
    return SqsQueues(fake.client, entry_calls(), ROLE)


def deliver(fake: FakeEntryService, batch: PushBatch = BATCH) -> Any:
    return queues(fake).deliver(TARGET, batch, 50_000)


def test_each_record_is_a_message_with_attributes() -> None:
    fake = FakeEntryService()
    record = StoredRecord(15, 5, b"\xff", b"one", (("type", b"order"),))
    assert deliver(fake, orders(record)) == Answered()
    [[entry]] = fake.calls
    assert entry == {
        "Id": "0",
        "MessageBody": "one",
        "MessageAttributes": {
            "penstock-topic": {"DataType": "String", "StringValue": "orders"},
            "penstock-partition": {"DataType": "Number", "StringValue": "0"},
            "penstock-offset": {"DataType": "Number", "StringValue": "15"},
            "penstock-timestamp-ms": {"DataType": "Number", "StringValue": "5"},
            "penstock-key": {"DataType": "Binary", "BinaryValue": b"\xff"},
            "type": {"DataType": "String", "StringValue": "order"},
        },
    }


def test_call_has_ten_messages_at_most() -> None:
    fake = FakeEntryService()
    deliver(fake, orders(*(StoredRecord(offset) for offset in range(23))))
    assert [len(entries) for entries in fake.calls] == [10, 10, 3]


def test_message_that_sqs_refuses_fails_its_record_alone() -> None:
    found = deliver(FakeEntryService({"two": "InvalidMessageContents"}))
    assert found == Answered(
        failed=frozenset({BATCH.records[1].place}),
        error="1 of 3 records were refused; orders-0 at offset 16: InvalidMessageContents: no",
    )


def test_record_that_is_too_large_fails_alone_and_is_not_sent() -> None:
    fake = FakeEntryService()
    batch = orders(StoredRecord(15), StoredRecord(16, value=b"x" * QUEUE_BYTES_MAX), StoredRecord(17))
    found = deliver(fake, batch)
    assert found.failed == {batch.records[1].place}
    assert "SQS takes 1,048,576" in found.error
    assert [[entry["Id"] for entry in entries] for entries in fake.calls] == [["0", "2"]]


def test_failure_of_sqs_itself_is_an_outage() -> None:
    found = deliver(FakeEntryService({"two": "InternalError"}, is_fault_theirs=False))
    assert found == Failed(failure=Failure.AWAY, error="InternalError: no")


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (client_error("AccessDenied", 403), Failure.AWAY),
        (client_error("AWS.SimpleQueueService.NonExistentQueue", 400), Failure.AWAY),
        (client_error("KmsThrottled", 400), Failure.AWAY),
        (client_error("RequestThrottled", 400), Failure.AWAY),
        (client_error("OverLimit", 400), Failure.AWAY),
        (client_error("InternalFailure", 500), Failure.AWAY),
        (client_error("ServiceUnavailable", 503), Failure.AWAY),
        (EndpointConnectionError(endpoint_url=URL), Failure.AWAY),
        (ReadTimeoutError(endpoint_url=URL), Failure.BROKEN),
        (client_error("AWS.SimpleQueueService.BatchRequestTooLong", 400), Failure.REFUSAL),
    ],
)
def test_each_error_of_a_call_has_its_kind(error: Exception, failure: Failure) -> None:
    assert deliver(FakeEntryService(error=error)) == Failed(failure=failure, error=str(error))


def test_check_sends_a_message_that_sqs_refuses() -> None:
    fake = FakeEntryService({"\0": "InvalidMessageContents"})
    queues(fake).check(TARGET)
    assert fake.calls == [[{"Id": "check", "MessageBody": "\0"}]]


def test_check_passes_where_sqs_refuses_the_whole_call() -> None:
    queues(FakeEntryService(error=client_error("InvalidMessageContents", 400))).check(TARGET)


def test_check_says_which_statement_allows_the_role() -> None:
    fake = FakeEntryService(error=client_error("AccessDenied", 403))
    error = refused(ErrorCode.ACCESS_DENIED, lambda: queues(fake).check(TARGET))
    assert json.loads(error.message.splitlines()[1]) == {
        "Sid": "PenstockDeliver",
        "Effect": "Allow",
        "Principal": {"AWS": ROLE},
        "Action": "sqs:SendMessage",
        "Resource": "arn:aws:sqs:eu-west-1:123456789012:pack",
    }


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (client_error("AWS.SimpleQueueService.NonExistentQueue", 400), ErrorCode.INVALID_CONFIG),
        (client_error("InternalFailure", 500), ErrorCode.STORAGE_UNAVAILABLE),
        (EndpointConnectionError(endpoint_url=URL), ErrorCode.STORAGE_UNAVAILABLE),
    ],
)
def test_check_refuses_a_queue_that_is_missing_or_does_not_answer(failure: Exception, code: ErrorCode) -> None:
    error = refused(code, lambda: queues(FakeEntryService(error=failure)).check(TARGET))
    assert URL in error.message
