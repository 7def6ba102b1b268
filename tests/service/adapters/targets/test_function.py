"""Lambda functions as targets: what is sent, and what happens to each answer and error."""

import io
import json
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from penstock_core.errors import ErrorCode
from penstock_core.limits import PUSH_PAYLOAD_BYTES_MAX
from penstock_core.push.batch import Answered, Failed, Failure
from penstock_core.push.targets.kafka_event import encode_kafka_event
from penstock_core.push.targets.target import FunctionTarget
from penstock_service.adapters.targets.function import LambdaFunctions
from tests.support.aws_errors import client_error
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"
ROLE = "arn:aws:iam::123456789012:role/Penstock-Deliver"
TARGET = FunctionTarget(arn=ARN)
BATCH = orders(StoredRecord(15), StoredRecord(16))
URL = "https://lambda.test"
TIMEOUT_MS = 50_000


class FakeLambda:
    """Answers each invocation with `payload`, or raises."""

    def __init__(self, payload: bytes = b"null", error: Exception | None = None, **facts: Any) -> None:
        self.timeouts_ms: list[int] = []
        self.calls: list[dict[str, Any]] = []
        self._payload, self._error, self._facts = payload, error, facts

    def client(self, timeout_ms: int) -> Any:
        self.timeouts_ms.append(timeout_ms)
        return self

    def invoke(self, **arguments: Any) -> dict[str, Any]:
        self.calls.append(arguments)
        if self._error is not None:
            raise self._error
        return {"StatusCode": 200, "Payload": io.BytesIO(self._payload), **self._facts}


def deliver(fake: FakeLambda) -> Any:
    return LambdaFunctions(fake.client, ROLE).deliver(TARGET, BATCH, TIMEOUT_MS)


def test_function_gets_the_event_and_has_the_time_of_the_delivery() -> None:
    fake = FakeLambda()
    assert deliver(fake) == Answered()
    assert fake.calls == [{"FunctionName": ARN, "Payload": encode_kafka_event(BATCH)}]
    assert fake.timeouts_ms == [TIMEOUT_MS]


def test_answer_names_the_records_that_failed() -> None:
    answer = {"batchItemFailures": [{"itemIdentifier": {"partition": "orders-0", "offset": 16}}]}
    found = deliver(FakeLambda(json.dumps(answer).encode()))
    assert isinstance(found, Answered)
    assert found.failed == {BATCH.records[1].place}


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (
            {"errorType": "ValueError", "errorMessage": "bad id", "stackTrace": ["x"]},  # AWS
            "ValueError: bad id",
        ),
        ({"errorMessage": "bad id", "errorType": "Runtime.HandlerError"}, "Runtime.HandlerError: bad id"),
        (
            {"errorMessage": "2026-11-23T10:00:00Z 1f Task timed out after 3.00 seconds"},
            'the function failed: {"errorMessage": "2026-11-23T10:00:00Z 1f Task timed out after 3.00 seconds"}',
        ),
        ({"errorType": "E", "errorMessage": "x" * 497}, "E: " + "x" * 497),
        (
            {"errorType": "E", "errorMessage": "x" * 10_000 + "\nValueError: bad id\n"},
            "E: " + "x" * 245 + " … " + "x" * 228 + "\nValueError: bad id\n",
        ),
        ("out of memory", 'the function failed: "out of memory"'),
    ],
)
def test_exception_of_the_function_refuses_the_batch(payload: Any, error: str) -> None:
    found = deliver(FakeLambda(json.dumps(payload).encode(), FunctionError="Unhandled"))
    assert found == Failed(failure=Failure.REFUSAL, error=error)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (client_error("TooManyRequestsException", 429), Failure.AWAY),
        (client_error("AccessDeniedException", 403), Failure.AWAY),
        (client_error("ResourceNotFoundException", 404), Failure.AWAY),
        (client_error("ResourceConflictException", 409), Failure.AWAY),
        (client_error("ServiceException", 500), Failure.AWAY),
        (client_error("KMSDisabledException", 502), Failure.AWAY),
        (client_error("SnapStartException", 400), Failure.AWAY),
        (client_error("ExpiredTokenException", 400), Failure.AWAY),
        (EndpointConnectionError(endpoint_url=URL), Failure.AWAY),
        (ConnectTimeoutError(endpoint_url=URL), Failure.AWAY),
        (ConnectionClosedError(endpoint_url=URL), Failure.AWAY),
        (NoCredentialsError(), Failure.AWAY),
        (ReadTimeoutError(endpoint_url=URL), Failure.BROKEN),
        (client_error("RequestTooLargeException", 413), Failure.REFUSAL),
        (client_error("InvalidRequestContentException", 400), Failure.REFUSAL),
    ],
)
def test_each_error_has_its_kind(error: Exception, failure: Failure) -> None:
    found = deliver(FakeLambda(error=error))
    assert found == Failed(failure=failure, error=str(error))


def test_record_that_no_event_can_hold_is_refused_without_a_call() -> None:
    fake = FakeLambda()
    batch = orders(StoredRecord(15, value=bytes(PUSH_PAYLOAD_BYTES_MAX)))
    found = LambdaFunctions(fake.client, ROLE).deliver(TARGET, batch, TIMEOUT_MS)
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSAL
    assert "Lambda takes 6 MiB" in found.error
    assert fake.calls == []


def test_check_makes_a_dry_run() -> None:
    fake = FakeLambda()
    LambdaFunctions(fake.client, ROLE).check(TARGET)
    assert fake.calls == [{"FunctionName": ARN, "InvocationType": "DryRun"}]


@pytest.mark.parametrize(("arn", "qualifier"), [(ARN, ""), (f"{ARN}:live", " --qualifier live")])
def test_check_says_how_to_allow_the_role(arn: str, qualifier: str) -> None:
    fake = FakeLambda(error=client_error("AccessDeniedException", 403))
    error = refused(ErrorCode.ACCESS_DENIED, lambda: LambdaFunctions(fake.client, ROLE).check(FunctionTarget(arn=arn)))
    assert error.message.splitlines()[1] == (
        f"aws lambda add-permission --function-name {ARN}{qualifier} --statement-id PenstockDeliver "
        f"--action lambda:InvokeFunction --principal {ROLE}"
    )


def test_check_of_a_missing_function_repeats_what_lambda_says() -> None:
    fake = FakeLambda(error=client_error("ResourceNotFoundException", 404))
    error = refused(ErrorCode.INVALID_CONFIG, lambda: LambdaFunctions(fake.client, ROLE).check(TARGET))
    assert "ResourceNotFoundException" in error.message, "it may be a function of another region"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (client_error("ResourceNotFoundException", 404), ErrorCode.INVALID_CONFIG),
        (client_error("ServiceException", 500), ErrorCode.STORAGE_UNAVAILABLE),
        (EndpointConnectionError(endpoint_url=URL), ErrorCode.STORAGE_UNAVAILABLE),
    ],
)
def test_check_refuses_a_function_that_is_missing_or_does_not_answer(failure: Exception, code: ErrorCode) -> None:
    error = refused(code, lambda: LambdaFunctions(FakeLambda(error=failure).client, ROLE).check(TARGET))
    assert ARN in error.message
