"""The check in front of the emulator: what a web page or an unsigned client can send does not reach it."""

import asyncio
import base64
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from localstack.request_guard import guarded, refusal

API = "/_aws/execute-api/abc/v1/topics"
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=AKIA/20261122/us-east-1/{}/aws4_request, SignedHeaders=host;x-amz-date, Signature="
)
Headers = list[tuple[str, str]]


def signed(service: str = "execute-api") -> str:
    return SIGNED.format(service) + "0" * 64


def ask(path: str, headers: Headers, method: str = "POST", kind: str = "http") -> tuple[int, str]:
    """The status and message of the answer; 200 if the request has reached the emulator."""
    sent: list[MutableMapping[str, Any]] = []

    async def emulator(_scope: object, _receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"message": ""}'})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": f"{kind}.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": kind, "method": method, "path": path, "headers": raw}
    asyncio.run(guarded(emulator)(scope, receive, send))
    if kind != "http":
        return int(sent[0].get("code", 200)), str(sent[0]["type"])
    return int(sent[0]["status"]), str(json.loads(sent[1]["body"])["message"])


@pytest.mark.parametrize("host", ["127.0.0.1:4566", "localhost:4566", "[::1]:4566", "localhost"])
@pytest.mark.parametrize(
    ("path", "service", "target"),
    [
        (API, "execute-api", None),
        ("/bucket/key", "s3", None),
        ("/", "dynamodb", "DynamoDB_20120810.GetItem"),
        ("/", "sqs", "AmazonSQS.SendMessage"),
        ("/", "iam", None),
        ("/2015-03-31/functions", "lambda", None),
    ],
)
def test_signed_request_of_this_machine_passes(host: str, path: str, service: str, target: str | None) -> None:
    headers: Headers = [("host", host), ("authorization", signed(service))]
    headers += [("x-amz-target", target)] if target else []
    assert ask(path, headers) == (200, "")


def test_zonal_host_of_a_directory_bucket_passes() -> None:
    host = "b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com"
    assert ask("/key", [("host", host), ("authorization", signed("s3express"))]) == (200, "")


@pytest.mark.parametrize("path", ["/_ministack/health", "/_ministack/ready"])
def test_health_passes_without_a_signature(path: str) -> None:
    assert ask(path, [("host", "127.0.0.1:4566")], "GET")[0] == 200
    assert ask(path, [("host", "127.0.0.1:4566"), ("origin", "http://localhost")], "GET")[0] == 403
    assert ask(path, [("host", "127.0.0.1:4566")], "POST")[0] == 403


@pytest.mark.parametrize(
    "hosts",
    [
        ["evil.example"],
        ["evil.example:4566"],
        ["127.0.0.1.evil.example"],
        ["localhost.evil.example:4566"],
        ["bucket.localhost:4566"],
        ["bucket.s3.us-east-1.amazonaws.com"],
        ["evil.example.s3express-use1-az4.us-east-1.amazonaws.com"],
        ["b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com.evil.example"],
        ["0.0.0.0:4566"],
        ["127.0.0.1:4566", "evil.example"],
        ["127.0.0.1:4566", "127.0.0.1:4566"],
        [""],
        [],
    ],
)
def test_foreign_host_is_refused(hosts: list[str]) -> None:
    status, message = ask(API, [*[("host", host) for host in hosts], ("authorization", signed())])
    assert (status, "Host" in message) == (403, True)


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:4566", "null", ""])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_request_of_a_web_page_is_refused(origin: str, method: str) -> None:
    headers = [("host", "localhost:4566"), ("Origin", origin), ("authorization", signed())]
    status, message = ask(API, headers, method)
    assert (status, "Origin" in message) == (403, True)


@pytest.mark.parametrize(
    "path",
    [
        "/_ministack/reset",
        "/_ministack/config",
        "/_ministack",
        "//_ministack/reset",
        "/_MINISTACK/reset",
        "/_localstack/state/reset",
        "/health",
        "/_ministack/health/",
    ],
)
def test_own_routes_of_the_emulator_are_closed(path: str) -> None:
    for service in ("execute-api", "s3"):
        status, message = ask(path, [("host", "localhost:4566"), ("authorization", signed(service))])
        assert (status, "own routes" in message) == (403, True)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["foo"],
        ["Basic eDp5"],
        ["Bearer x"],
        ["AWS AKIA:signature"],
        ["AWS4-HMAC-SHA256"],
        ["AWS4-HMAC-SHA256 Credential=AKIA/20261122/us-east-1/execute-api/aws4_request"],
        [signed()[:-1]],
        [signed() + "0"],
        [signed() + ", x"],
        [signed().replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256")],
        [signed().replace("20261122", "now")],
        [signed(), signed()],
        ["junk", signed()],
        [signed(), "junk"],
        [f"{signed()}, junk"],
    ],
)
@pytest.mark.parametrize("path", [API, "/", "/bucket/key"])
def test_request_without_one_sigv4_signature_is_refused(path: str, values: list[str]) -> None:
    status, message = ask(path, [("host", "localhost:4566"), *[("Authorization", value) for value in values]])
    assert status == 403
    assert "Authorization" in message


@pytest.mark.parametrize(
    ("path", "service", "target"),
    [
        (API, "s3", None),
        (API, "dynamodb", "DynamoDB_20120810.GetItem"),
        ("/", "s3", "DynamoDB_20120810.GetItem"),
        ("/", "dynamodb", "AmazonSQS.SendMessage"),
        ("/", "execute-api", None),
        ("//_aws/execute-api/abc/v1/topics", "execute-api", None),
    ],
)
def test_signature_for_another_service_is_refused(path: str, service: str, target: str | None) -> None:
    headers: Headers = [("host", "localhost:4566"), ("authorization", signed(service))]
    status, message = ask(path, headers + ([("x-amz-target", target)] if target else []))
    assert (status, "signed for the service" in message) == (403, True)


def test_websocket_is_closed() -> None:
    assert ask(API, [("host", "localhost:4566")], kind="websocket") == (1008, "websocket.close")


EVENTS_HOST = "abc123.appsync-api.us-east-1.localhost:4566"
REALTIME_HOST = "abc123.appsync-realtime-api.us-east-1.localhost:4566"
REALTIME = "/event/realtime"


def protocols(headers: object) -> str:
    encoded = base64.urlsafe_b64encode(json.dumps(headers).encode()).decode().rstrip("=")
    return f"header-{encoded}, aws-appsync-event-ws"


def open_websocket(headers: Headers, path: str = REALTIME) -> int:
    """The code with which the guard closes the WebSocket; 200 if it has reached the emulator."""
    return ask(path, headers, kind="websocket")[0]


def test_signed_event_passes_by_the_host_of_the_event_api() -> None:
    assert ask("/event", [("host", EVENTS_HOST), ("authorization", signed("appsync"))])[0] == 200
    assert ask("/event", [("host", EVENTS_HOST)])[0] == 403
    assert ask("/event", [("host", EVENTS_HOST), ("authorization", signed("execute-api"))])[0] == 403
    assert ask("/event", [("host", EVENTS_HOST), ("origin", "null"), ("authorization", signed("appsync"))])[0] == 403
    assert ask("/", [("host", EVENTS_HOST), ("authorization", signed("appsync"))])[0] == 403
    assert ask("/event", [("host", "a.appsync-api.evil.example"), ("authorization", signed("appsync"))])[0] == 403


def test_signed_websocket_of_a_reader_passes() -> None:
    good = ("sec-websocket-protocol", protocols({"Authorization": signed("appsync"), "host": EVENTS_HOST}))
    assert open_websocket([("host", REALTIME_HOST), good]) == 200


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (REALTIME, [("host", REALTIME_HOST)]),
        (REALTIME, [("host", REALTIME_HOST), ("sec-websocket-protocol", "aws-appsync-event-ws")]),
        (REALTIME, [("host", REALTIME_HOST), ("sec-websocket-protocol", "header-!, aws-appsync-event-ws")]),
        (REALTIME, [("host", REALTIME_HOST), ("sec-websocket-protocol", protocols([1]))]),
        (REALTIME, [("host", REALTIME_HOST), ("sec-websocket-protocol", protocols({"x-api-key": "da2-a"}))]),
        (REALTIME, [("host", REALTIME_HOST), ("sec-websocket-protocol", protocols({"authorization": signed()}))]),
        (REALTIME, [("host", "127.0.0.1:4566"), ("sec-websocket-protocol", "GOOD")]),
        (REALTIME, [("host", REALTIME_HOST), ("sec-websocket-protocol", "GOOD"), ("origin", "http://evil.example")]),
        ("/_aws/execute-api/abc/dev", [("host", REALTIME_HOST), ("sec-websocket-protocol", "GOOD")]),
    ],
)
def test_other_websocket_is_refused(path: str, headers: Headers) -> None:
    good = protocols({"authorization": signed("appsync")})
    assert open_websocket([(name, good if value == "GOOD" else value) for name, value in headers], path) == 1008


ANSWER = "/_ministack/cfn-response/01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        (ANSWER, "PUT", 200),
        (ANSWER, "POST", 403),
        (ANSWER.rpartition("/")[0], "PUT", 403),
        (f"{ANSWER}/x", "PUT", 403),
        ("/_ministack/reset", "PUT", 403),
    ],
)
def test_function_may_answer_cloudformation_by_its_token_only(path: str, method: str, status: int) -> None:
    assert ask(path, [("host", "localhost:4566")], method)[0] == status


@pytest.mark.parametrize(
    ("authorization", "takes", "status"),
    [
        ("Bearer a.b.c", True, 200),
        ("Bearer a.b.c", False, 403),
        ("Bearer a b", True, 403),
        ("Bearer ", True, 403),
        ("bearer a.b.c", True, 403),
        ("Basic YTpi", True, 403),
    ],
)
def test_token_reaches_only_a_route_that_takes_one(authorization: str, takes: bool, status: int) -> None:
    raw = [(b"host", b"127.0.0.1:4566"), (b"authorization", authorization.encode())]
    why = refusal("GET", API, raw, lambda method, path: takes and (method, path) == ("GET", API))
    assert (why is None) == (status == 200)
    assert refusal("GET", API, [*raw, (b"origin", b"null")], lambda _method, _path: True) is not None
