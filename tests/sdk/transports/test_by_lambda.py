"""Functions invoked by Lambda's API: which alias, how often, and what each of Lambda's answers means for a call."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import Admin, Producer
from penstock.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    InvalidError,
    NotConfiguredError,
    PenstockError,
    RecordTooLargeError,
    ThrottledError,
    UnavailableError,
)
from penstock.http.async_client import AsyncClient
from penstock.http.client import Client
from penstock.http.http_message import HttpRequest, Response, json_request, raise_for_status
from penstock.retry import RetryPolicy
from penstock.system import wall_clock_ms
from penstock.transports.async_by_lambda import AsyncLambdaTransport
from penstock.transports.by_lambda import LambdaTransport
from penstock_core.direct.function_arn import FunctionsPlace
from penstock_core.errors import ErrorCode
from penstock_core.records import frame
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from tests.support.fake_aws import ACCOUNT, FakeAws, Fault, Told, always, lambda_error, lost, sts_error
from tests.support.service import new_topic

ADA = f"arn:aws:iam::{ACCOUNT}:user/ada"
METADATA = json_request("GET", "/v1/metadata", {"topic": "orders"})
CREATE = json_request("POST", "/v1/topics", body={"name": "fresh", "partitions": 1})
NOW = RetryPolicy(backoff_ms=1, backoff_max_ms=1)


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    fake = FakeAws()
    yield fake
    fake.close()


@pytest.fixture
def instance() -> Instance:
    made = memory_instance()
    new_topic(made, "orders")
    return made


@pytest.fixture
def place(aws: FakeAws, instance: Instance) -> FunctionsPlace:
    return aws.stage(instance)


@pytest.fixture
def transport(aws: FakeAws, place: FunctionsPlace) -> LambdaTransport:
    return LambdaTransport(aws.access(place, aws.key(ADA)))


def called(transport: LambdaTransport, request: HttpRequest) -> None:
    """One try of a request. Raises the error that its answer is."""
    answer = transport.call(request.method, request.path, request.query, request.headers, request.body)
    raise_for_status(request, answer)


def failure(transport: LambdaTransport, request: HttpRequest = CREATE) -> PenstockError:
    with pytest.raises(PenstockError) as failed:
        called(transport, request)
    return failed.value


def test_call_invokes_the_function_of_the_route_by_the_alias_of_the_least_rights(
    aws: FakeAws, place: FunctionsPlace, transport: LambdaTransport
) -> None:
    called(transport, METADATA)
    called(transport, CREATE)
    assert aws.invoked == [place.alias_arn("admin", "direct-produce"), place.alias_arn("admin", "direct-admin")]


def test_client_learns_which_alias_it_may_invoke(aws: FakeAws, place: FunctionsPlace) -> None:
    own = place.alias_arn("admin", "direct-consume")
    transport = LambdaTransport(aws.access(place, aws.key(ADA, frozenset({own}))))
    for _ in range(3):
        called(transport, METADATA)
    assert aws.invoked == [own] * 3
    assert aws.denied == [place.alias_arn("admin", "direct-produce")]


def test_client_with_no_right_is_told_which_one_it_needs(aws: FakeAws, place: FunctionsPlace) -> None:
    transport = LambdaTransport(aws.access(place, aws.key(ADA, frozenset())))
    error = failure(transport)
    assert isinstance(error, AccessDeniedError)
    assert "lambda:InvokeFunction" in error.message
    assert not error.maybe_applied
    assert aws.invoked == []


def test_authority_is_asked_once_when_a_client_calls_often(aws: FakeAws, transport: LambdaTransport) -> None:
    for _ in range(5):
        called(transport, METADATA)
    assert (len(aws.invoked), aws.identified) == (5, 1)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 700_001])
def test_binary_body_and_answer_arrive_as_they_are(transport: LambdaTransport, size: int) -> None:
    with Producer(transport=transport, compression_type="none") as producer:
        sent = producer.send("orders", bytes(index % 251 for index in range(size)), partition=0)
    assert sent.result().offset == 0
    body = json.dumps({"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}).encode()
    answer = transport.call("POST", "/v1/fetch", {}, {}, body)
    header, batches = frame.decode(answer.body)
    results: Any = header["partitions"]
    assert results[0]["length"] == len(batches) > size


@pytest.mark.parametrize(
    ("told", "kind", "maybe_applied"),
    [
        (lambda_error(429, "TooManyRequestsException", Retry_After="7"), ThrottledError, False),
        (lambda_error(413, "RequestTooLargeException"), RecordTooLargeError, False),
        (lambda_error(409, "ResourceConflictException"), UnavailableError, False),
        (lambda_error(400, "InvalidRequestContentException"), InvalidError, False),
        (lambda_error(403, "ExpiredTokenException"), AccessDeniedError, False),
        (lambda_error(403, "InvalidSignatureException"), AccessDeniedError, False),
        (lambda_error(500, "ServiceException"), UnavailableError, True),
        (lambda_error(502, "EC2UnexpectedException"), UnavailableError, True),
        (Told(503, b"<html>"), UnavailableError, True),
        (Told(200, b'{"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 15.00 seconds"}',
              {"X-Amz-Function-Error": "Unhandled"}), UnavailableError, True),
        (Told(200, b"null"), UnavailableError, True),
        (Told(200, b"[]"), UnavailableError, True),
        (Told(200, b'{"statusCode": 200, "headers": {}, "body": "*", "isBase64Encoded": 1}'), UnavailableError, True),
        (Told(202, b""), UnavailableError, True),
    ],
)  # fmt: skip
def test_answer_of_lambda_becomes_the_error_that_http_would_give(
    aws: FakeAws, transport: LambdaTransport, told: Told, kind: type[PenstockError], maybe_applied: bool
) -> None:
    aws.lambda_faults = [always(told)]
    error = failure(transport)
    assert isinstance(error, kind)
    assert error.maybe_applied is maybe_applied
    aws.lambda_faults = [always(told)]
    assert not failure(transport, METADATA).maybe_applied  # a read changes nothing
    assert aws.invoked == []


def test_throttled_call_tells_when_to_come_back(aws: FakeAws, transport: LambdaTransport) -> None:
    aws.lambda_faults = [always(lambda_error(429, "TooManyRequestsException", Retry_After="7"))]
    assert failure(transport).facts["retry_after_ms"] == 7_000


def test_function_that_is_not_there_names_the_setting(aws: FakeAws, transport: LambdaTransport) -> None:
    aws.lambda_faults = [always(lambda_error(404, "ResourceNotFoundException"))]
    error = failure(transport)
    assert isinstance(error, NotConfiguredError)
    assert "direct=on" in error.message


def test_path_of_no_route_is_refused_before_anything_is_sent(aws: FakeAws, transport: LambdaTransport) -> None:
    assert failure(transport, json_request("GET", "/v2/topics")).code is ErrorCode.UNKNOWN_ROUTE
    assert aws.invoked == []


def test_lost_answer_may_have_applied(aws: FakeAws, transport: LambdaTransport) -> None:
    aws.lambda_faults = [lost]
    error = failure(transport)
    assert isinstance(error, ConnectionFailedError)
    assert error.maybe_applied
    assert len(aws.invoked) == 1  # nothing below the SDK has sent it again
    assert "fresh" in [topic.name for topic in Admin(transport=transport).list_topics()]


def test_lambda_that_is_not_there_has_surely_done_nothing(aws: FakeAws, transport: LambdaTransport) -> None:
    aws.close()
    assert not failure(transport).maybe_applied


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (always(lambda_error(429, "TooManyRequestsException")), 2),
        (always(lambda_error(500, "ServiceException")), 1),
        (lost, 1),
    ],
    ids=["throttled", "failed", "lost"],
)
def test_write_is_tried_again_only_when_the_failure_changed_nothing(
    aws: FakeAws, transport: LambdaTransport, fault: Fault, tries: int
) -> None:
    seen = 0

    def counting(inner: Fault) -> Fault:
        def fault(serve: Callable[[], Told]) -> Told:
            nonlocal seen
            seen += 1
            return inner(serve)

        return fault

    aws.lambda_faults = [counting(fault), counting(lambda serve: serve())]
    client = Client(transport, retry=NOW)
    if tries == 1:
        with pytest.raises(UnavailableError) as failed:
            client.document(CREATE)
        assert failed.value.maybe_applied
    else:
        assert client.document(CREATE)["name"] == "fresh"
    assert seen == tries


@pytest.mark.slow
def test_outage_of_sts_is_tried_again_and_applies_once(aws: FakeAws, transport: LambdaTransport) -> None:
    aws.sts_faults = [always(sts_error(503, "ServiceUnavailable"))] * 2
    assert Client(transport, retry=NOW).document(CREATE)["name"] == "fresh"
    assert len(aws.invoked) == 2


def test_asynchronous_client_calls_as_the_other_one(aws: FakeAws, place: FunctionsPlace) -> None:
    own = frozenset({place.alias_arn("admin", "direct-admin")})
    transport = AsyncLambdaTransport(aws.access(place, aws.key(ADA, own)))

    async def main() -> list[object]:
        client = AsyncClient(transport, retry=NOW)
        try:
            aws.lambda_faults = [always(lambda_error(429, "TooManyRequestsException"))]
            documents = [(await client.document(METADATA))["name"], (await client.document(CREATE))["name"]]
            aws.lambda_faults = [lost]
            with pytest.raises(ConnectionFailedError) as failed:
                await client.try_once(json_request("DELETE", "/v1/topics/fresh"))
            return [*documents, failed.value.maybe_applied]
        finally:
            await client.close()

    assert asyncio.run(main()) == ["orders", "fresh", True]


@pytest.mark.parametrize("kind", [LambdaTransport, AsyncLambdaTransport])
def test_invocation_that_grew_old_on_its_way_is_signed_anew_and_begun_once(
    aws: FakeAws,
    place: FunctionsPlace,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[LambdaTransport] | type[AsyncLambdaTransport],
) -> None:
    transport = kind(aws.access(place, aws.key(ADA)))
    signed_ms: list[int] = []

    def wall_clock() -> int:
        signed_ms.append(wall_clock_ms() - (0 if signed_ms else 600_000))
        return signed_ms[-1]

    monkeypatch.setattr("penstock.http.signature.wall_clock_ms", wall_clock)
    call = transport.call(METADATA.method, METADATA.path, METADATA.query, METADATA.headers, METADATA.body)
    answer = asyncio.run(call) if asyncio.iscoroutine(call) else call
    assert isinstance(answer, Response)
    assert answer.status == 200
    assert len(aws.invoked) == 1


def test_wake_ups_are_signed_with_the_callers_key(transport: LambdaTransport) -> None:
    headers = transport.event_headers("events.example", b"{}")
    assert "/appsync/aws4_request" in headers["Authorization"]


def test_transport_opens_connections_again_after_its_close(transport: LambdaTransport) -> None:
    called(transport, METADATA)
    transport.close()
    called(transport, METADATA)
