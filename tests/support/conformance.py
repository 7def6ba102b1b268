"""Runs docs/reference/conformance.json, whose shape is in docs/reference/conformance.md.

It sends by a function of the caller, so it runs on handlers, on `penstock dev`, or on a stage.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock_core.records import frame

CONFORMANCE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.json"
_KINDS: Mapping[str, type] = {"string": str, "integer": int}
_NAMED = re.compile(r"\$\{(\w+)\}")


class Received(NamedTuple):
    status: int
    body: bytes
    is_frame: bool


Send = Callable[[str, str, bytes], Received]


def scenarios() -> dict[str, list[dict[str, Any]]]:
    """The steps of each scenario, by its name."""
    return {each["name"]: each["steps"] for each in json.loads(CONFORMANCE.read_text())["scenarios"]}


def run_scenario(steps: list[dict[str, Any]], send: Send, run: str) -> None:
    """Send each step. Raises AssertionError that names the first answer which is not as the step says."""
    known: dict[str, Any] = {"run": run}
    for step in steps:
        method, path = step["method"], filled(step["path"], known)
        received = send(method, path, request_of(step, known))
        where = f"{method} {path}: {received.body!r:.500}"
        assert received.status == step["status"], where
        answer, data = _parsed(received)
        if "answer" in step:
            wrong = differences(filled(step["answer"], known), answer)
            assert not wrong, f"{wrong} in {where}"
        assert base64.b64encode(data).decode() == step.get("data", ""), where
        for name, place in step.get("take", {}).items():
            known[name] = _at(answer, place)


def request_of(step: Mapping[str, Any], known: Mapping[str, Any]) -> bytes:
    """The body of the step's request: a frame, JSON, or nothing."""
    if "frame" in step:
        return frame.encode(filled(step["frame"]["header"], known), [base64.b64decode(step["frame"]["data"])])
    return json.dumps(filled(step["body"], known)).encode() if "body" in step else b""


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """The value with its variables put in, and with its long texts written out."""
    if isinstance(value, dict) and "$text" in value:
        return value["$text"] * value["$times"]
    if isinstance(value, dict):
        return {name: filled(each, known) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, known) for each in value]
    if not isinstance(value, str):
        return value
    whole = _NAMED.fullmatch(value)
    return known[whole[1]] if whole else _NAMED.sub(lambda found: str(known[found[1]]), value)


def differences(expected: Any, got: Any, where: str = "answer") -> list[str]:
    """Where the answer lacks what is expected. An object may have more fields, an array has as many elements."""
    if isinstance(expected, dict) and "$type" in expected:
        is_one = isinstance(got, _KINDS[expected["$type"]]) and not isinstance(got, bool)
        return [] if is_one else [f"{where} is {got!r}, not a {expected['$type']}"]
    if isinstance(expected, dict) and isinstance(got, dict):
        missing = [f"{where}.{name} is missing" for name in expected if name not in got]
        shared = expected.keys() & got.keys()
        return [
            *missing,
            *(line for name in shared for line in differences(expected[name], got[name], f"{where}.{name}")),
        ]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = enumerate(zip(expected, got, strict=True))
        return [line for index, (each, found) in pairs for line in differences(each, found, f"{where}[{index}]")]
    return [] if expected == got and type(expected) is type(got) else [f"{where} is {got!r}, not {expected!r}"]


def _parsed(received: Received) -> tuple[Any, bytes]:
    if received.is_frame:
        header, data = frame.decode(received.body)
        return header, bytes(data)
    return (json.loads(received.body) if received.body else None), b""


def _at(answer: Any, place: str) -> Any:
    for part in place.split("."):
        answer = answer[int(part) if isinstance(answer, list) else part]
    return answer
