"""EventBridge buses as targets: what is put, and what happens to each answer and error."""

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from penstock_core.errors import ErrorCode
from penstock_core.limits import BUS_BYTES_MAX
from penstock_core.push.batch import Answered, Failed, Failure, PushBatch
from penstock_core.push.targets.bus_event import bus_event
from penstock_core.push.targets.target import BusTarget
from penstock_service.adapters.targets.bus import EventBuses
from tests.service.adapters.targets.entry_service import ROLE, FakeEntryService, entry_calls
from tests.support.aws_errors import client_error
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused

ARN = "arn:aws:events:eu-west-1:123456789012:event-bus/orders"
TARGET = BusTarget(arn=ARN)
BATCH = orders(StoredRecord(15, value=b"one"), StoredRecord(16, value=b"two"), StoredRecord(17, value=b"three"))
URL = "https://events.test"


def buses(fake: FakeEntryService) -> EventBuses:
    return EventBuses(fake.client, entry_calls(), ROLE)


def deliver(fake: FakeEntryService, batch: PushBatch = BATCH) -> Any:
    return buses(fake).deliver(TARGET, batch, 50_000)


def test_each_record_is_an_event() -> None:
    fake = FakeEntryService()
    assert deliver(fake) == Answered()
    [entries] = fake.calls
    assert entries[0] == {
        "EventBusName": ARN,
        "Source": "penstock",
        "DetailType": "orders",
        "Detail": bus_event(BATCH.records[0]).detail,
    }
    assert [json.loads(entry["Detail"])["offset"] for entry in entries] == [15, 16, 17]


def test_call_has_ten_events_at_most() -> None:
    fake = FakeEntryService()
    deliver(fake, orders(*(StoredRecord(offset) for offset in range(23))))
    assert [len(entries) for entries in fake.calls] == [10, 10, 3]


def test_event_that_is_refused_fails_its_record_alone() -> None:
    found = deliver(FakeEntryService({"two": "MalformedDetail"}))
    assert found == Answered(
        failed=frozenset({BATCH.records[1].place}),
        error="1 of 3 records were refused; orders-0 at offset 16: MalformedDetail: no",
    )


def test_record_that_is_too_large_fails_alone_and_is_not_put() -> None:
    fake = FakeEntryService()
    batch = orders(StoredRecord(15, value=b"x" * BUS_BYTES_MAX), StoredRecord(16))
    found = deliver(fake, batch)
    assert found.failed == {batch.records[0].place}
    assert "EventBridge takes 1,000,000" in found.error
    assert [len(entries) for entries in fake.calls] == [1]


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalFailure", "AccessDeniedException"])
def test_entry_that_failed_by_an_outage_is_no_refusal(code: str) -> None:
    found = deliver(FakeEntryService({"two": code}))
    assert found == Failed(failure=Failure.AWAY, error=f"{code}: no")


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (client_error("AccessDeniedException", 400), Failure.AWAY),
        (client_error("ResourceNotFoundException", 400), Failure.AWAY),
        (client_error("ThrottlingException", 400), Failure.AWAY),
        (client_error("InternalException", 500), Failure.AWAY),
        (EndpointConnectionError(endpoint_url=URL), Failure.AWAY),
        (ReadTimeoutError(endpoint_url=URL), Failure.BROKEN),
        (client_error("ValidationException", 400), Failure.REFUSAL),
    ],
)
def test_each_error_of_a_call_has_its_kind(error: Exception, failure: Failure) -> None:
    assert deliver(FakeEntryService(error=error)) == Failed(failure=failure, error=str(error))


def test_check_puts_an_event_that_eventbridge_refuses() -> None:
    fake = FakeEntryService({"{}": "NotAuthorizedForSourceException"})
    buses(fake).check(TARGET)
    [[entry]] = fake.calls
    assert (entry["EventBusName"], entry["Source"]) == (ARN, "aws.penstock")


@pytest.mark.parametrize(
    "fake",
    [
        FakeEntryService(error=client_error("AccessDeniedException", 400)),
        FakeEntryService({"{}": "AccessDeniedException"}),
    ],
    ids=["the call", "the entry"],
)
def test_check_says_which_statement_allows_the_role(fake: FakeEntryService) -> None:
    error = refused(ErrorCode.ACCESS_DENIED, lambda: buses(fake).check(TARGET))
    assert json.loads(error.message.splitlines()[1]) == {
        "Sid": "PenstockDeliver",
        "Effect": "Allow",
        "Principal": {"AWS": ROLE},
        "Action": "events:PutEvents",
        "Resource": ARN,
    }


def test_check_that_eventbridge_could_not_make_says_so() -> None:
    fake = FakeEntryService({"{}": "ThrottlingException"})
    error = refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: buses(fake).check(TARGET))
    assert "ThrottlingException" in error.message


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (client_error("ResourceNotFoundException", 400), ErrorCode.INVALID_CONFIG),
        (client_error("InternalException", 500), ErrorCode.STORAGE_UNAVAILABLE),
        (EndpointConnectionError(endpoint_url=URL), ErrorCode.STORAGE_UNAVAILABLE),
    ],
)
def test_check_refuses_a_bus_that_is_missing_or_does_not_answer(failure: Exception, code: ErrorCode) -> None:
    error = refused(code, lambda: buses(FakeEntryService(error=failure)).check(TARGET))
    assert ARN in error.message
