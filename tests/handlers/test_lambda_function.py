"""The wrapper around every Lambda function, and the modules that a function imports."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from penstock_handlers.edge import lambda_function
from penstock_handlers.edge.lambda_function import Stopwatch, observed
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.adapters.system import ThreadExecutor
from penstock_service.instance.instance import Instance
from tests.handlers.service import CONTEXT
from tests.support.deadlines import DEADLINE_S
from tests.support.wire import LAMBDA_ENVIRONMENT

BINARY_FUNCTIONS = ("produce", "fetch", "transactions")
SCHEDULED_FUNCTIONS = ("upkeep", "hourly", "sweep", "replicate")


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Instance:
    """The instance that functions find."""
    found = memory_instance()
    monkeypatch.setattr(lambda_function, "instance", lambda: found)
    monkeypatch.setattr(lambda_function.metrics.provider, "namespace", "Penstock")
    monkeypatch.setattr(lambda_function.metrics.provider, "service", "penstock")
    return found


def test_observed_passes_the_event_the_instance_and_a_running_stopwatch(instance: Instance) -> None:
    def serve(event: str, to: Instance, stopwatch: Stopwatch) -> tuple[str, bool]:
        assert stopwatch.total_ms() >= 0
        assert stopwatch.cpu_ms() >= 0
        assert stopwatch.storage_calls() == {}
        to.telemetry.count("requests_seen")
        return event, to is instance

    assert observed(serve)("the event", CONTEXT) == ("the event", True)


@pytest.mark.parametrize("is_failing", [False, True])
def test_observed_reports_telemetry_when_the_function_ends(
    instance: Instance, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, is_failing: bool
) -> None:
    def serve(_event: object, to: Instance, _stopwatch: Stopwatch) -> None:
        to.telemetry.log("repair_postponed", segment="s1")
        to.telemetry.count("reads_hedged", 7)
        if is_failing:
            raise ValueError("a defect")

    if is_failing:
        with pytest.raises(ValueError, match="a defect"):
            observed(serve)({}, CONTEXT)
    else:
        observed(serve)({}, CONTEXT)
    [line] = [record for record in caplog.records if record.getMessage() == "repair_postponed"]
    assert getattr(line, "segment", None) == "s1"
    [metrics] = [json.loads(text) for text in capsys.readouterr().out.splitlines() if "_aws" in text]
    assert (metrics["repair_postponed"], metrics["reads_hedged"]) == ([1.0], [7.0])


def test_straggler_of_one_request_counts_for_no_later_one(
    instance: Instance, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A put that goes on after its answer, as when Lambda freezes the process."""
    gate, ended = threading.Event(), threading.Event()
    executor = ThreadExecutor()

    def put(zone: str) -> str:
        if zone == "c":
            gate.wait(DEADLINE_S)
        lambda_function.STORAGE_CALLS._count("before-send.s3.PutObject")
        instance.telemetry.count(f"puts_of_{zone}")
        instance.telemetry.log(f"put_to_{zone}")
        if zone == "c":
            ended.set()
        return zone

    def append(_event: object, _to: Instance, stopwatch: Stopwatch) -> dict[str, int]:
        executor.first_of(put, "abc", lambda results: results[0] == "a" and results[1] == "b", 0)
        return stopwatch.storage_calls()

    def read(_event: object, to: Instance, stopwatch: Stopwatch) -> dict[str, int]:
        gate.set()
        assert ended.wait(DEADLINE_S)
        lambda_function.STORAGE_CALLS._count("before-send.s3.GetObject")
        to.telemetry.count("reads")
        return stopwatch.storage_calls()

    assert observed(append)({}, CONTEXT) == {"s3.PutObject": 2}
    assert observed(read)({}, CONTEXT) == {"s3.GetObject": 1}
    executor.close()
    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines() if "_aws" in text]
    names = ("puts_of_a", "puts_of_b", "puts_of_c", "reads")
    assert [[name for name in names if name in line] for line in lines] == [["puts_of_a", "puts_of_b"], ["reads"]]
    assert sorted(record.getMessage() for record in caplog.records) == ["put_to_a", "put_to_b"]


def test_observed_publishes_nothing_when_there_is_nothing_to_tell(
    instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    observed(lambda _event, to, _stopwatch: to.telemetry.count("reads_hedged", 0))({}, CONTEXT)
    assert capsys.readouterr().out == ""


def _imported(functions: Iterable[str], environment: Mapping[str, str] | None = None) -> Any:
    """The modules that a new process has after it imported these functions."""
    script = f"import json, sys, {', '.join(f'penstock_handlers.{name}' for name in functions)}; "
    script += "print(json.dumps([*sys.modules]))"
    return _run(script, environment)


def _run(script: str, environment: Mapping[str, str] | None = None) -> Any:
    """The JSON that a new process prints."""
    path = [entry for entry in sys.path if entry]
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {script}"],
        env={"PATH": os.environ["PATH"], **(environment or {})},
        capture_output=True,
        check=True,
    )
    return json.loads(found.stdout)


@pytest.mark.slow
def test_binary_functions_import_neither_pydantic_nor_a_resolver() -> None:
    unwanted = {"pydantic", "aws_lambda_powertools.event_handler", "penstock_handlers.edge.models"}
    assert not unwanted & {*_imported(BINARY_FUNCTIONS)}


@pytest.mark.slow
def test_scheduled_functions_import_nothing_of_http() -> None:
    unwanted = {"pydantic", "pybase64", "penstock_handlers.edge.http", "penstock_handlers.edge.entry"}
    assert not unwanted & {*_imported(SCHEDULED_FUNCTIONS)}


@pytest.mark.slow
def test_import_outside_lambda_loads_no_library_of_aws() -> None:
    loaded = _imported([*BINARY_FUNCTIONS, *SCHEDULED_FUNCTIONS, "router"])
    assert not {"boto3", "aws_xray_sdk", "botocore.session", "penstock_service.adapters.aws"} & {*loaded}


HEAVY = {
    "botocore.client",
    "botocore.exceptions",
    "botocore.session",
    "penstock_core.compaction",
    "penstock_core.groups",
    "penstock_core.push",
    "penstock_core.share",
    "penstock_core.transaction",
    "penstock_handlers.edge.access.audited",
    "pydantic",
    "urllib3",
}


@pytest.mark.slow
@pytest.mark.parametrize("function", ["produce", "fetch"])
def test_import_in_lambda_loads_no_heavy_module_when_the_function_carries_records(function: str) -> None:
    places = {"PENSTOCK_WAKE_UPS": "a.example,b.example", "PENSTOCK_TIMERS": "url,rule,arn,function"}
    loaded = {*_imported([function], {**LAMBDA_ENVIRONMENT, **places})}
    assert "penstock_service.adapters.direct.s3" in loaded
    assert not HEAVY & loaded


_IMPORT_ON_A_WIRE = """
import json, pytest
from tests.support.wire import Wire
wire = Wire()
wire.replace_connections(pytest.MonkeyPatch())
import penstock_handlers.{function}
from penstock_handlers.edge.lambda_function import instance
print(json.dumps([instance.cache_info().currsize, wire.operations()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("function", "sessions"), [("produce", 3), ("hourly", 3), ("groups", 0)])
def test_import_in_lambda_makes_the_instance_and_opens_the_zones_that_the_function_uses(
    function: str, sessions: int
) -> None:
    zones = ",".join(f"{zone}=zone-{zone}--use1-az4--x-s3" for zone in "abc")
    environment = {**LAMBDA_ENVIRONMENT, "PENSTOCK_ZONES": zones}
    made, operations = _run(_IMPORT_ON_A_WIRE.format(function=function), environment)
    assert (made, operations) == (1, ["CreateSession"] * sessions)
