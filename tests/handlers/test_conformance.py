"""The handlers do what docs/reference/conformance.json says, in the forms of the OpenAPI document."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.routes import match_route
from penstock_handlers.edge.http import BATCHES
from penstock_handlers.openapi.document import document
from tests.handlers.service import Service
from tests.support.conformance import CONFORMANCE, Received, differences, filled, run_scenario, scenarios
from tests.support.json_schema import mistakes

WHOLE = document()
SCENARIOS = scenarios()


@pytest.mark.parametrize("name", SCENARIOS)
def test_handlers_conform(service: Service, name: str) -> None:
    run_scenario(SCENARIOS[name], Calls(service).send, "r1")


class Calls:
    """Calls handlers, and holds what goes and comes against the document."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def send(self, method: str, path: str, body: bytes) -> Received:
        parts = urlsplit(path)
        answer = self._service.call(method, parts.path, body, **dict(parse_qsl(parts.query)))
        is_frame = answer.headers.get("Content-Type") == BATCHES
        match = match_route(method, parts.path)
        assert match is not None, "the file calls routes that there are"
        operation = WHOLE["paths"][match.route.path][method.lower()]
        if body and answer.status < 400 and "application/json" in operation["requestBody"]["content"]:
            assert not mistakes(
                operation["requestBody"]["content"]["application/json"]["schema"], json.loads(body), WHOLE
            )
        if answer.body and not is_frame:
            response = operation["responses"].get(str(answer.status), WHOLE["components"]["responses"]["Refusal"])
            assert not mistakes(response["content"]["application/json"]["schema"], answer.json, WHOLE)
        return Received(answer.status, answer.body, is_frame)


def test_file_has_the_routes_of_programs_and_the_errors_that_they_meet() -> None:
    steps = [step for each in SCENARIOS.values() for step in each]
    codes = {code for code in ErrorCode.__members__ if f'"{code}"' in CONFORMANCE.read_text()}
    assert {"accept", "release", "reject", "renew"} <= {
        entry["type"] for step in steps for entry in step.get("body", {}).get("acknowledge", ())
    }
    assert codes >= {
        "INVALID_NAME",
        "UNKNOWN_TOPIC",
        "TOPIC_EXISTS",
        "RECORD_TOO_LARGE",
        "OUT_OF_ORDER_SEQUENCE",
        "PRODUCER_FENCED",
        "CORRUPT_BATCH",
        "OFFSET_OUT_OF_RANGE",
        "OFFSET_BEHIND",
        "LEASE_HELD",
        "LOCK_LOST",
    }


@pytest.mark.parametrize(
    ("expected", "got", "wrong"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1}, {"b": 1}, ["answer.a is missing"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, ["answer.a[0].b is 2, not 1"]),
        ([1], [1, 2], ["answer is [1, 2], not [1]"]),
        (1, True, ["answer is True, not 1"]),
        (None, 0, ["answer is 0, not None"]),
        ({"$type": "integer"}, 3, []),
        ({"$type": "integer"}, True, ["answer is True, not a integer"]),
        ({"$type": "string"}, 3, ["answer is 3, not a string"]),
    ],
)
def test_differences_tell_what_an_answer_lacks(expected: Any, got: Any, wrong: list[str]) -> None:
    assert differences(expected, got) == wrong


def test_step_whose_answer_is_another_one_fails(service: Service) -> None:
    steps = [{"method": "POST", "path": "/v1/topics", "body": {"name": "a"}, "status": 200}]
    with pytest.raises(AssertionError, match="POST /v1/topics"):
        run_scenario(steps, Calls(service).send, "r1")
    steps = [{"method": "GET", "path": "/v1/topics", "status": 200, "answer": {"topics": []}}]
    with pytest.raises(AssertionError, match=r"answer\.topics"):
        run_scenario(steps, Calls(service).send, "r1")


def test_variables_keep_their_types_where_they_stand_alone() -> None:
    known: Mapping[str, object] = {"n": 7, "s": "x"}
    given = {"offset": "${n}", "path": "/a/${s}-${n}", "long": {"$text": "ab", "$times": 2}}
    assert filled(given, known) == {"offset": 7, "path": "/a/x-7", "long": "abab"}
