"""WakeUps on AppSync: the signed request that leaves, the answers that count as failures, and the reader's place."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.wake_up import WakeUpMessage
from penstock_service.adapters.absent import NoWakeUps
from penstock_service.adapters.appsync import AppSyncWakeUps
from penstock_service.adapters.aws import parse_wake_ups
from penstock_service.adapters.direct.connections import Connections, HttpAnswer
from penstock_service.adapters.direct.places import Keys
from penstock_service.adapters.dynamodb.driver_errors import NeverSentError

HOST = "abc.appsync-api.eu-north-1.amazonaws.com"
REALTIME_HOST = "abc.appsync-realtime-api.eu-north-1.amazonaws.com"
MESSAGE = WakeUpMessage(channel="/wake/t1/0", event='{"partition":0}')
TAKEN = {"successful": [{"identifier": "1", "index": 0}], "failed": []}


class Sent(NamedTuple):
    origin: str
    host: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def answer(status: int, body: Any) -> HttpAnswer:
    return HttpAnswer(status, {}, json.dumps(body).encode())


def publish(monkeypatch: pytest.MonkeyPatch, answered: HttpAnswer | Exception, **options: Any) -> list[Sent]:
    """The requests that one message sends."""
    requests: list[Sent] = []

    def send(connections: Connections, method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        requests.append(Sent(connections.origin, connections.host, method, target, headers, body))
        if isinstance(answered, Exception):
            raise answered
        return answered

    monkeypatch.setattr(Connections, "send", send)
    made = {"host": HOST, "realtime_host": REALTIME_HOST, "region": "eu-north-1", **options}
    AppSyncWakeUps(keys=lambda: Keys("AKIA", "secret", "token"), **made).publish(MESSAGE)
    return requests


def test_message_is_one_signed_post(monkeypatch: pytest.MonkeyPatch) -> None:
    [request] = publish(monkeypatch, answer(200, TAKEN))
    assert (request.method, request.origin, request.target) == ("POST", f"https://{HOST}", "/event")
    assert json.loads(request.body) == {"channel": "/wake/t1/0", "events": ['{"partition":0}']}
    assert request.host == HOST
    assert request.headers["x-amz-security-token"] == "token"
    assert "/eu-north-1/appsync/aws4_request" in request.headers["authorization"]
    assert "host" in request.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")


def test_signature_is_botocore_s(monkeypatch: pytest.MonkeyPatch) -> None:
    [request] = publish(monkeypatch, answer(200, TAKEN))
    same = AWSRequest("POST", f"https://{HOST}/event", data=request.body)
    same.headers["content-type"] = "application/json"
    same.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIA", "secret", "token"), "appsync", "eu-north-1")
    same.headers["X-Amz-Date"] = request.headers["x-amz-date"]
    same.headers["X-Amz-Security-Token"] = "token"
    text = signer.string_to_sign(same, signer.canonical_request(same))
    assert request.headers["authorization"].endswith(f"Signature={signer.signature(text, same)}")


def test_message_goes_to_the_emulator_under_the_name_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    [request] = publish(monkeypatch, answer(200, TAKEN), endpoint_url="http://127.0.0.1:4566")
    assert (request.origin, request.host) == ("http://127.0.0.1:4566", HOST)


@pytest.mark.parametrize(
    "answered",
    [
        answer(401, {"errors": [{"errorType": "UnauthorizedException"}]}),
        answer(500, {}),
        answer(200, {"successful": [], "failed": [{"index": 0, "code": 1}]}),
        NeverSentError("no way"),
    ],
)
def test_message_that_is_not_taken_is_an_error(
    monkeypatch: pytest.MonkeyPatch, answered: HttpAnswer | Exception
) -> None:
    with pytest.raises(PenstockError) as caught:
        publish(monkeypatch, answered)
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
        host=HOST,
        realtime_host=REALTIME_HOST,
        region="x",
        keys=lambda: Keys("AKIA", "secret"),
        endpoint_url=endpoint_url,
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
