"""The recording transport records every produce request, and no more of it than is known."""

import io
import json
from collections.abc import Mapping

import pytest

from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from tests.chaos.clients.values import make_value, name_of
from tests.chaos.recording import RecordingTransport
from tests.history.recorder import Recorder

ERROR = {"code": "STORAGE_UNAVAILABLE", "message": "away"}


class Answering:
    """A transport that gives one answer, or raises it."""

    def __init__(self, answer: Response | Exception) -> None:
        self._answer = answer

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def close(self) -> None:
        return


def produce(answer: Response | Exception) -> list[dict[str, object]]:
    """Return the lines that a request with "v0" to partition 0 and "v1" to partition 1 leaves."""
    batches = [encode([NewRecord(0, None, make_value(name, 50))]) for name in ("v0", "v1")]
    header = {
        "acks": "all",
        "batches": [{"topic": "orders", "partition": n, "length": len(each)} for n, each in enumerate(batches)],
    }
    stream = io.BytesIO()
    transport = RecordingTransport(Answering(answer), Recorder(stream), "p1")
    try:
        transport.call("POST", "/v1/produce", {}, {}, frame.encode(header, batches))
    except ConnectionFailedError:
        assert isinstance(answer, Exception)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def results(*each: Mapping[str, object]) -> Response:
    return Response(200, {}, json.dumps({"results": each}).encode())


def test_every_partition_is_an_operation_of_its_own_with_its_offsets() -> None:
    lines = produce(results({"base_offset": 5, "next_offset": 6}, {"error": {**ERROR, "maybe_applied": False}}))
    assert [(line["type"], line.get("acks")) for line in lines[:2]] == [("invoke", "all"), ("invoke", "all")]
    assert lines[0]["ops"] == [["send", "orders", 0, "v0", None]]
    assert (lines[2]["type"], lines[2]["ops"]) == ("ok", [["send", "orders", 0, "v0", 5]])
    assert lines[3]["type"] == "fail"


@pytest.mark.parametrize(
    "answer",
    [
        results(*[{"error": {**ERROR, "maybe_applied": True}}] * 2),
        Response(502, {}, b"Bad Gateway"),
        ConnectionFailedError("reset", maybe_applied=True),
    ],
    ids=["said so", "gateway", "no answer"],
)
def test_what_may_have_been_applied_is_a_maybe_of_one_attempt(answer: Response | Exception) -> None:
    assert [(line["type"], line["attempts"]) for line in produce(answer)[2:]] == [("info", 1), ("info", 1)]


@pytest.mark.parametrize(
    "answer",
    [
        Response(503, {}, json.dumps({"error": {**ERROR, "maybe_applied": False}}).encode()),
        ConnectionFailedError("refused", maybe_applied=False),
    ],
    ids=["refused", "never sent"],
)
def test_what_was_certainly_not_applied_is_a_fail(answer: Response | Exception) -> None:
    assert [line["type"] for line in produce(answer)[2:]] == ["fail", "fail"]


def test_damaged_values_are_named_as_nobody_named_them() -> None:
    value = make_value("p-1", 40)
    assert name_of(value) == "p-1"
    assert name_of(value[:-1] + b"?").startswith("not a value")
    assert name_of(None).startswith("not a value")
