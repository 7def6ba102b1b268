"""HTTPS endpoints as targets: the signed request, and what each answer means."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from penstock import webhook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.batch import Answered, Failed, Failure
from penstock_core.push.targets.target import HttpsTarget
from penstock_core.push.targets.webhook import sign
from penstock_core.push.targets.webhook_body import decode_webhook_body, webhook_message_id
from penstock_service.adapters.https_target import HttpAnswer, HttpsEndpoints
from penstock_service.adapters.targets.endpoint import Endpoints
from tests.support.push_records import StoredRecord, push_batch, push_record
from tests.support.refusals import refused
from tests.support.service import SteppedClock

SECRET = "whsec_" + "QUFB" * 8
TARGET = HttpsTarget(url="https://receiver.example/in", secret=SECRET)
BATCH = push_batch(
    [
        push_record(StoredRecord(15, key=b"c1", value=b'{"id": 1}', headers=(("type", b"order"), ("x", None)))),
        push_record(StoredRecord(16, value=None)),
    ],
    attempt=3,
)


class FakeEndpoint:
    """Answers each request, or raises."""

    def __init__(self, answer: HttpAnswer | None = None, error: PenstockError | None = None) -> None:
        self.requests: list[tuple[str, Mapping[str, str], bytes, int]] = []
        self.checked: list[str] = []
        self._answer, self._error = answer or HttpAnswer(status=200, body=b""), error

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> HttpAnswer:
        self.requests.append((url, headers, body, timeout_ms))
        if self._error is not None:
            raise self._error
        return self._answer

    def check(self, url: str) -> None:
        self.checked.append(url)
        if self._error is not None:
            raise self._error


def endpoints(fake: FakeEndpoint) -> Endpoints:
    return Endpoints(cast(HttpsEndpoints, fake), SteppedClock())


def deliver(fake: FakeEndpoint) -> Any:
    return endpoints(fake).deliver(TARGET, BATCH, 50_000)


def test_request_is_signed_and_names_its_records() -> None:
    fake = FakeEndpoint()
    assert deliver(fake) == Answered()
    [(url, headers, body, timeout_ms)] = fake.requests
    message_id = webhook_message_id(BATCH.subscription_id, [record.place for record in BATCH.records])
    assert (url, timeout_ms) == (TARGET.url, 50_000)
    assert headers == {"content-type": "application/json", **sign(SECRET, message_id, 1_000, body)}
    told = decode_webhook_body(body)
    assert told.subscription == "packing"
    assert [(each.offset, each.key, each.value, each.headers, each.attempt) for each in told.records] == [
        (15, b"c1", b'{"id": 1}', (("type", b"order"), ("x", None)), 3),
        (16, None, None, (), 3),
    ]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
@pytest.mark.parametrize("body", [b"", b"OK", b"<html>", b"{}", b'{"received": true}', b"\xff"])
def test_success_handles_all(status: int, body: bytes) -> None:
    assert deliver(FakeEndpoint(HttpAnswer(status=status, body=body))) == Answered()


def test_success_may_name_records_that_failed() -> None:
    record = decode_webhook_body(_sent_body()).records[1]
    answer = json.dumps(webhook.failure_answer([record])).encode()
    found = deliver(FakeEndpoint(HttpAnswer(status=200, body=answer)))
    assert found.failed == {BATCH.records[1].place}


def test_name_of_another_record_refuses_the_batch() -> None:
    body = b'{"batchItemFailures": [{"itemIdentifier": "orders-0-99"}]}'
    found = deliver(FakeEndpoint(HttpAnswer(status=200, body=body)))
    assert found.failure is Failure.REFUSAL


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        *((status, Failure.AWAY) for status in (401, 403, 404, 410, 429)),
        *((status, Failure.AWAY) for status in (301, 302, 307, 308, 304)),
        *((status, Failure.BROKEN) for status in (408, 500, 502, 503, 504)),
        *((status, Failure.REFUSAL) for status in (400, 402, 405, 409, 413, 415, 422, 451)),
    ],
)
def test_each_status_has_its_kind(status: int, failure: Failure) -> None:
    found = deliver(FakeEndpoint(HttpAnswer(status=status, body=b" no thanks\n" + b"x" * 1_000)))
    assert found.failure is failure
    assert found.error.startswith(f"status {status}: no thanks")
    assert len(found.error) < 250


def test_error_has_the_status_alone_where_there_is_no_body() -> None:
    assert deliver(FakeEndpoint(HttpAnswer(status=500, body=b""))).error == "status 500"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (PenstockError(ErrorCode.INVALID_CONFIG, "a private address"), Failure.AWAY),
        (PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no connection"), Failure.AWAY),
        (PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer in time", maybe_applied=True), Failure.BROKEN),
    ],
)
def test_request_that_was_not_sent_is_an_outage(error: PenstockError, failure: Failure) -> None:
    assert deliver(FakeEndpoint(error=error)) == Failed(failure=failure, error=error.message)


def test_check_looks_at_the_address_and_sends_nothing() -> None:
    fake = FakeEndpoint()
    endpoints(fake).check(TARGET)
    assert (fake.checked, fake.requests) == ([TARGET.url], [])
    private = FakeEndpoint(error=PenstockError(ErrorCode.INVALID_CONFIG, "a private address"))
    refused(ErrorCode.INVALID_CONFIG, lambda: endpoints(private).check(TARGET))


def _sent_body() -> bytes:
    fake = FakeEndpoint()
    deliver(fake)
    return fake.requests[0][2]


def test_request_carries_the_trace_context_that_its_records_share() -> None:
    context = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    record = push_record(StoredRecord(15, headers=(("traceparent", context), ("content-type", b"text/html"))))
    fake = FakeEndpoint()
    endpoints(fake).deliver(TARGET, push_batch([record]), 1_000)
    [(_, headers, _, _)] = fake.requests
    assert headers["traceparent"] == context.decode()
    assert headers["content-type"] == "application/json"
