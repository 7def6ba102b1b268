"""WakeUps on AppSync: the signed request that leaves, the answers that count as failures, and the reader's place."""

import json
import socket
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import EndpointConnectionError

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.wake_up import WakeUpMessage
from penstock_service.adapters import appsync
from penstock_service.adapters.appsync import AppSyncWakeUps
from penstock_service.adapters.aws import parse_wake_ups
from penstock_service.adapters.no_wake_ups import NoWakeUps

HOST = "abc.appsync-api.eu-north-1.amazonaws.com"
REALTIME_HOST = "abc.appsync-realtime-api.eu-north-1.amazonaws.com"
MESSAGE = WakeUpMessage(channel="/wake/t1/0", event='{"partition":0}')
TAKEN = {"successful": [{"identifier": "1", "index": 0}], "failed": []}


class Answer:
    def __init__(self, status_code: int, body: Any) -> None:
        self.status_code = status_code
        self.content = json.dumps(body).encode()
        self.text = self.content.decode()


class Session:
    """botocore's HTTP session, with one answer or error for all requests."""

    def __init__(self, answer: Answer | Exception) -> None:
        self.answer = answer
        self.sent: list[Any] = []
        self.options: dict[str, Any] = {}

    def made(self, **options: Any) -> "Session":
        self.options = options
        return self

    def send(self, request: Any) -> Answer:
        self.sent.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def publish(monkeypatch: pytest.MonkeyPatch, answer: Answer | Exception, **options: Any) -> list[Any]:
    """The requests that one message sends."""
    return published(monkeypatch, answer, **options).sent


def published(monkeypatch: pytest.MonkeyPatch, answer: Answer | Exception, **options: Any) -> Session:
    session = Session(answer)
    monkeypatch.setattr(appsync, "URLLib3Session", session.made)
    made = {"host": HOST, "realtime_host": REALTIME_HOST, "region": "eu-north-1", **options}
    wake_ups = AppSyncWakeUps(credentials=lambda: Credentials("AKIA", "secret", "token"), **made)
    wake_ups.publish(MESSAGE)
    return session


def test_message_is_one_signed_post(monkeypatch: pytest.MonkeyPatch) -> None:
    [request] = publish(monkeypatch, Answer(200, TAKEN))
    assert (request.method, request.url) == ("POST", f"https://{HOST}/event")
    assert json.loads(request.body) == {"channel": "/wake/t1/0", "events": ['{"partition":0}']}
    headers = {name.lower(): str(value) for name, value in request.headers.items()}
    assert headers["host"] == HOST
    assert headers["x-amz-security-token"] == "token"
    assert "/eu-north-1/appsync/aws4_request" in headers["authorization"]
    assert "host" in headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")


def test_body_does_not_wait_for_the_acknowledgement_of_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    options = published(monkeypatch, Answer(200, TAKEN)).options["socket_options"]
    assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in options


def test_message_goes_to_the_emulator_under_the_name_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    [request] = publish(monkeypatch, Answer(200, TAKEN), endpoint_url="http://127.0.0.1:4566")
    assert request.url == "http://127.0.0.1:4566/event"
    assert {str(value) for name, value in request.headers.items() if name.lower() == "host"} == {HOST}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(401, {"errors": [{"errorType": "UnauthorizedException"}]}),
        Answer(500, {}),
        Answer(200, {"successful": [], "failed": [{"index": 0, "code": 1}]}),
        EndpointConnectionError(endpoint_url=f"https://{HOST}"),
    ],
)
def test_message_that_is_not_taken_is_an_error(monkeypatch: pytest.MonkeyPatch, answer: Answer | Exception) -> None:
    with pytest.raises(PenstockError) as caught:
        publish(monkeypatch, answer)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert MESSAGE.channel in caught.value.message


@pytest.mark.parametrize(
    ("endpoint_url", "realtime_url"),
    [
        (None, f"wss://{REALTIME_HOST}/event/realtime"),
        ("http://127.0.0.1:4566", "ws://127.0.0.1:4566/event/realtime"),
    ],
)
def test_place_names_the_websocket_and_both_hosts(endpoint_url: str | None, realtime_url: str) -> None:
    place = AppSyncWakeUps(
        host=HOST, realtime_host=REALTIME_HOST, region="x", credentials=lambda: None, endpoint_url=endpoint_url
    ).place
    assert place is not None
    assert (place.realtime_url, place.host, place.realtime_host) == (realtime_url, HOST, REALTIME_HOST)


def test_stage_without_wake_ups_has_no_place() -> None:
    NoWakeUps().publish(MESSAGE)
    assert NoWakeUps().place is None


def test_hosts_are_read_from_one_variable() -> None:
    assert parse_wake_ups("a,b") == ("a", "b")
    assert parse_wake_ups("") is parse_wake_ups(None) is None
    for text in ("a", "a,", ",b", "a,b,c"):
        with pytest.raises(ValueError, match="hosts"):
            parse_wake_ups(text)
