"""What direct clients make of answers: items with bytes, errors in the words of botocore, and the second try of S3."""

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import pytest
from botocore.exceptions import ClientError

from penstock_service.adapters.direct.connections import Connections, HttpAnswer
from penstock_service.adapters.direct.drivers import DirectDynamoDb
from penstock_service.adapters.direct.places import Keys, Places
from penstock_service.adapters.direct.s3 import DirectS3, parse_session
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, DriverError, NeverSentError, NoAnswerError
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import SequentialExecutor, SystemEntropy
from penstock_service.ports.runtime import Runtime
from tests.support.service import SteppedClock

PLACES = Places(region="eu-west-1", endpoints={"s3": "http://127.0.0.1:1", "dynamodb": "http://127.0.0.1:1"})
ANSWER = HttpAnswer(200, {}, b"")
PUT = {"Bucket": "zone-a", "Key": "k", "Body": b"x", "ChecksumCRC32C": "AAAAAA=="}


class Answers:
    """The answers or errors of the next requests, in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: HttpAnswer | DriverError) -> None:
        self._answers = list(answers)
        self.sent = 0
        monkeypatch.setattr(Connections, "send", self._send)

    def _send(self, _method: str, _target: str, _headers: Mapping[str, str], _body: bytes) -> HttpAnswer:
        self.sent += 1
        answer = self._answers.pop(0)
        if isinstance(answer, DriverError):
            raise answer
        return answer


def _dynamodb(calls: StorageCalls | None = None) -> DirectDynamoDb:
    return DirectDynamoDb(PLACES, lambda: Keys("key", "secret"), SteppedClock().now_ms, calls or StorageCalls())


def _s3(calls: StorageCalls | None = None) -> DirectS3:
    runtime = Runtime(clock=SteppedClock(), entropy=SystemEntropy(), executor=SequentialExecutor())
    return DirectS3(PLACES, lambda: Keys("key", "secret"), runtime, calls or StorageCalls(), lambda: None)


def _json(status: int, content: Any, **headers: str) -> HttpAnswer:
    return HttpAnswer(status, headers, json.dumps(content).encode())


def test_items_have_bytes_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    item = {
        "pk": {"S": "B"},
        "B": {"B": "AP8="},
        "BS": {"BS": ["AA==", "/w=="]},
        "tail": {"L": [{"B": "AQ=="}]},
        "producers": {"M": {"B": {"B": "Ag=="}}},
    }
    Answers(monkeypatch, _json(200, {"Item": item}))
    assert _dynamodb().get_item(TableName="t", Key={})["Item"] == {
        "pk": {"S": "B"},
        "B": {"B": b"\x00\xff"},
        "BS": {"BS": [b"\x00", b"\xff"]},
        "tail": {"L": [{"B": b"\x01"}]},
        "producers": {"M": {"B": {"B": b"\x02"}}},
    }


def test_refusal_has_the_code_the_status_and_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
    Answers(monkeypatch, _json(400, {"__type": kind, "message": "no", "Item": {"a": {"B": "AQ=="}}}))
    with pytest.raises(AnsweredError) as caught:
        _dynamodb().update_item(TableName="t", Key={})
    error, code = caught.value, "ConditionalCheckFailedException"
    assert (error.code, error.status, error.item, error.reasons) == (code, 400, {"a": {"B": b"\x01"}}, ())
    assert str(error) == str(ClientError({"Error": {"Code": code, "Message": "no"}}, "UpdateItem"))


def test_refusal_has_the_reasons_of_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: list[dict[str, Any]] = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"a": {"B": "AQ=="}}}]
    kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
    Answers(monkeypatch, _json(400, {"__type": kind, "Message": "no", "CancellationReasons": reasons}))
    with pytest.raises(AnsweredError) as caught:
        _dynamodb().transact_write_items(TransactItems=[])
    assert caught.value.reasons == [reasons[0], {**reasons[1], "Item": {"a": {"B": b"\x01"}}}]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]"])
def test_refusal_without_a_reason_has_the_status_for_its_code(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    Answers(monkeypatch, HttpAnswer(503, {}, body))
    with pytest.raises(AnsweredError) as caught:
        _dynamodb().get_item(TableName="t", Key={})
    assert (caught.value.code, caught.value.status) == ("503", 503)


def test_answer_of_dynamodb_that_is_damaged_is_an_error_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"Item": {}}'
    Answers(monkeypatch, HttpAnswer(200, {"x-amz-crc32": str(crc32(body) ^ 1)}, body), HttpAnswer(200, {}, b"{"))
    with pytest.raises(NoAnswerError, match="Checksum crc32 failed"):
        _dynamodb().get_item(TableName="t", Key={})
    with pytest.raises(NoAnswerError, match="no JSON"):
        _dynamodb().get_item(TableName="t", Key={})


def test_dynamodb_is_asked_once_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = StorageCalls()
    answers = Answers(monkeypatch, NoAnswerError("silence"))
    with pytest.raises(NoAnswerError):
        _dynamodb(calls).transact_write_items(TransactItems=[])
    assert answers.sent == 1
    assert calls.snapshot() == {"dynamodb.TransactWriteItems": 1}


def test_call_with_something_that_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        _dynamodb().get_item(Key={"pk": {"S": object()}})


@pytest.mark.parametrize(
    "first",
    [
        HttpAnswer(500, {}, b""),
        HttpAnswer(503, {}, b"<Error><Code>SlowDown</Code><Message>Slow &amp; down</Message></Error>"),
        HttpAnswer(400, {}, b"<Error><Code>RequestTimeout</Code></Error>"),
        NoAnswerError("silence"),
        NeverSentError("no way"),
    ],
)
def test_s3_is_asked_again_once_when_that_can_help(
    monkeypatch: pytest.MonkeyPatch, first: HttpAnswer | DriverError
) -> None:
    calls = StorageCalls()
    Answers(monkeypatch, first, ANSWER)
    _s3(calls).put_object(**PUT)
    assert calls.snapshot() == {"s3.PutObject": 2}
    answers = Answers(monkeypatch, first, first, ANSWER)
    with pytest.raises(DriverError):
        _s3().put_object(**PUT)
    assert answers.sent == 2


@pytest.mark.parametrize(
    ("status", "code"), [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict"), (404, "NoSuchKey")]
)
def test_refusal_of_s3_is_not_repeated(monkeypatch: pytest.MonkeyPatch, status: int, code: str) -> None:
    answers = Answers(monkeypatch, HttpAnswer(status, {}, f"<Error><Code>{code}</Code></Error>".encode()))
    with pytest.raises(AnsweredError) as caught:
        _s3().put_object(**PUT)
    assert (caught.value.code, caught.value.status) == (code, status)
    assert answers.sent == 1


def test_s3_refuses_arguments_that_it_would_not_send() -> None:
    with pytest.raises(TypeError, match="Tagging"):
        _s3().put_object(**PUT, Tagging="a=b")


def test_session_is_none_when_a_part_is_missing() -> None:
    with pytest.raises(NoAnswerError, match="Expiration is missing"):
        parse_session(b"<CreateSessionResult/>")
