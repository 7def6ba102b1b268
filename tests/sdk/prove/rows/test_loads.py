"""The rows that load or change the stage: each holds, each finds its fault, and each puts back what it changed."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock.prove.proof import Proof
from penstock.prove.rows import loads
from tests.sdk.prove.stubbed_stage import LIVE, StubbedStage, refusal, resources

LOGGING = {"LogFormat": "JSON", "ApplicationLogLevel": "INFO", "SystemLogLevel": "WARN", "LogGroup": "/aws/lambda/f"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOT_APPENDS_MAX": 60, "_HOT_THREADS": 4, "_LOG_MS": 300, "_SYNC_MS": 50}.items():
        monkeypatch.setattr(loads, name, value)


def _counted(stubbed: StubbedStage, answer: Any) -> Proof:
    stubbed.aws.answers["cloudwatch.GetMetricStatistics"] = answer
    return stubbed.ask(loads.hot_partition)


def _each_third(stubbed: StubbedStage, make: Any) -> None:
    calls = iter(range(10_000))
    stubbed.transport.instead = lambda _, path, __: make() if path == "/v1/produce" and next(calls) % 3 == 0 else None


def test_hot_partition_holds_where_all_is_as_its_answers_say(stubbed: StubbedStage) -> None:
    events = {"Datapoints": [{"Sum": 7.0}, {"Sum": 1.0}]}
    found = _counted(stubbed, events)
    assert found.ruling.value == "holds", found.fact
    assert (found.figures["acknowledged"], found.figures["wrong"], found.figures["write_throttle_events"]) == (60, 0, 8)
    [asked] = [params for name, params in stubbed.aws.asked if name == "cloudwatch.GetMetricStatistics"]
    assert asked["Dimensions"] == [{"Name": "TableName", "Value": "log"}]
    assert asked["StartTime"] <= datetime.now(UTC)


def test_throttled_and_unsure_appends_are_counted_and_hold(stubbed: StubbedStage) -> None:
    answers = iter(
        [refusal(429, "THROTTLED"), refusal(429, None), refusal(503, "STORAGE_UNAVAILABLE", maybe_applied=True)]
    )
    made = [next(answers) for _ in range(3)]
    turns = iter(range(10_000))
    _each_third(stubbed, lambda: made[next(turns) % 3])
    found = _counted(stubbed, "AccessDenied")
    assert found.ruling.value == "holds", found.fact
    counts = [found.figures[name] for name in ("acknowledged", "refused", "unsure", "throttled")]
    assert sum(map(int, counts[:3])) == 60
    assert min(map(int, counts)) > 5
    assert "cloudwatch:GetMetricStatistics" in found.fact


def test_lost_connection_leaves_an_append_unsure(stubbed: StubbedStage) -> None:
    def lose() -> Response:
        raise ConnectionFailedError("reset", maybe_applied=True)

    _each_third(stubbed, lose)
    found = _counted(stubbed, {"Datapoints": []})
    assert (found.ruling.value, found.figures["unsure"]) == ("holds", 20)


@pytest.mark.parametrize("fault", ["lost", "doubled", "refused but there"])
def test_hot_partition_finds_what_is_not_as_its_answer_says(stubbed: StubbedStage, fault: str) -> None:
    turns = iter(range(10_000))

    def instead(_: str, path: str, body: bytes) -> Response | None:
        if path != "/v1/produce" or next(turns) != 30:
            return None
        if fault == "lost":
            return Response(200, {}, b'{"results": [{"base_offset": 5000}]}')
        answer = stubbed.service.transport.call("POST", path, {}, {}, body)
        if fault == "doubled":
            return stubbed.service.transport.call("POST", path, {}, {}, body)
        assert answer.status == 200
        return refusal(429, "THROTTLED")

    stubbed.transport.instead = instead
    found = _counted(stubbed, {"Datapoints": []})
    assert (found.ruling.value, found.figures["wrong"]) == ("does not hold", 1), found.fact


def _zone_row() -> Any:
    return next(each for each in loads.load_rows(1_000) if each.ask is loads.zone_out)


def _states(stubbed: StubbedStage) -> list[str]:
    return [each.state for each in stubbed.service.admin().list_zones()]


def _in_sync(stubbed: StubbedStage) -> None:
    """Zones that are catching up are in sync for who asks, as `recover_zones` would make them."""

    def instead(method: str, path: str, _: bytes) -> Response | None:
        if (method, path) != ("GET", "/v1/zones"):
            return None
        answer = stubbed.service.transport.call(method, path, {}, {}, b"")
        return Response(answer.status, answer.headers, answer.body.replace(b"catching_up", b"in_sync"))

    stubbed.transport.instead = instead


def test_zone_that_is_shut_off_and_comes_back_holds(stubbed: StubbedStage) -> None:
    _in_sync(stubbed)
    found = stubbed.ask(loads.zone_out)
    assert (found.ruling.value, found.figures["appended"]) == ("holds", 10), found.fact
    assert "without zone c" in found.fact
    assert _states(stubbed) == ["in_sync", "in_sync", "catching_up"]
    assert [each["kind"] for each in stubbed.stage.leftovers.entries] == ["topic"]


def test_zone_that_does_not_come_back_is_found(stubbed: StubbedStage) -> None:
    found = stubbed.ask(loads.zone_out)
    assert found.ruling.value == "does not hold"
    assert "catching_up after" in found.fact


def test_append_that_fails_without_the_zone_is_found_and_the_zone_is_let_in(stubbed: StubbedStage) -> None:
    stubbed.transport.instead = lambda _, path, __: refusal(503, "NOT_ENOUGH_ZONES") if path == "/v1/produce" else None
    assert stubbed.ask(loads.zone_out).ruling.value == "does not hold"
    assert _states(stubbed)[-1] == "catching_up"


def test_zone_is_let_in_by_the_end_of_a_run_whose_row_fails(stubbed: StubbedStage) -> None:
    def instead(_: str, path: str, __: bytes) -> Response | None:
        if path == "/v1/produce":
            raise ValueError("a defect")
        return None

    stubbed.transport.instead = instead
    [found] = stubbed.run(_zone_row())
    assert found.proof.ruling.value == "does not hold"
    assert _states(stubbed)[-1] == "catching_up"
    assert not stubbed.path.exists()


def test_zone_stays_where_another_one_is_out(stubbed: StubbedStage) -> None:
    stubbed.service.admin().take_zone_out("a", "bucket policy changes")
    assert stubbed.ask(loads.zone_out).ruling.value == "left out"
    assert _states(stubbed) == ["taken_out", "in_sync", "in_sync"]


class Lambda:
    """Lambda's functions: their log configuration, and how long each one loads after a change of it."""

    def __init__(self, stubbed: StubbedStage, load_ms: float | None) -> None:
        self.configurations = {name: dict(LOGGING) for name in ("penstock-produce", "penstock-fetch")}
        self.changes: list[Mapping[str, Any]] = []
        self.load_ms = load_ms
        stubbed.aws.answers |= {
            "lambda.GetFunctionConfiguration": lambda asked: {
                "LoggingConfig": self.configurations[asked["FunctionName"]],
                "LastUpdateStatus": "Successful",
            },
            "lambda.UpdateFunctionConfiguration": self._update,
            "logs.FilterLogEvents": self._lines,
        }

    def _update(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self.changes.append(asked)
        self.configurations[asked["FunctionName"]] = dict(asked["LoggingConfig"])
        return {}

    def _lines(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        assert asked["logGroupName"] == "/aws/lambda/f"
        if self.load_ms is None:
            return {"events": []}
        if "nextToken" not in asked:
            return {"events": [], "nextToken": "a page without a line is not the last one"}
        record = {"type": "platform.initReport", "record": {"metrics": {"durationMs": self.load_ms}}}
        return {"events": [{"message": json.dumps(record)}]}


@pytest.mark.parametrize(("load_ms", "ruling"), [(310.5, "holds"), (950.0, "does not hold"), (None, "does not hold")])
def test_cold_starts_are_measured_and_the_configuration_is_as_before(
    stubbed: StubbedStage, load_ms: float | None, ruling: str
) -> None:
    functions = Lambda(stubbed, load_ms)
    found = stubbed.ask(loads.cold_starts)
    assert found.ruling.value == ruling, found.fact
    if load_ms is not None:
        assert found.figures["produce_load_ms"] == round(load_ms)
    assert functions.configurations == dict.fromkeys(functions.configurations, LOGGING)
    levels = [each["LoggingConfig"]["SystemLogLevel"] for each in functions.changes]
    assert levels == ["DEBUG", "WARN"] * 2
    assert [each["kind"] for each in stubbed.stage.leftovers.entries] == ["topic"]


def test_configuration_is_put_back_if_the_row_fails_behind_the_change(stubbed: StubbedStage) -> None:
    functions = Lambda(stubbed, 300.0)
    stubbed.aws.answers["logs.FilterLogEvents"] = "AccessDeniedException"
    [found] = stubbed.run(*loads.cold_rows(), seconds_max=900)
    assert found.proof.ruling.value == "unknown"
    assert "logs:FilterLogEvents" in found.proof.fact
    assert functions.configurations["penstock-produce"] == LOGGING


def test_stage_with_versions_has_its_functions_left_alone(stubbed: StubbedStage) -> None:
    functions = Lambda(stubbed, 300.0)
    stubbed.aws.answers["cloudformation.ListStackResources"] = {"StackResourceSummaries": resources(LIVE)}
    assert stubbed.ask(loads.cold_starts).ruling.value == "left out"
    assert functions.changes == []


def test_first_requests_after_idle_minutes_hold_if_no_call_is_repeated(tmp_path: Path) -> None:
    stubbed = StubbedStage(tmp_path, idle_ms=120_000)
    found = stubbed.ask(loads.idle)
    assert (found.ruling.value, found.figures["idle_s"], found.figures["calls_repeated"]) == ("holds", 120, 0)
    assert stubbed.waits == [120.0]


@pytest.mark.parametrize(
    ("path", "calls"),
    [
        ("/v1/produce", "dynamodb.UpdateItem=1,s3.PutObject=4"),
        ("/v1/produce", "dynamodb.UpdateItem=2,s3.PutObject=3"),
        ("/v1/fetch", "dynamodb.GetItem=1,s3.GetObject=2"),
    ],
)
def test_call_that_is_repeated_after_idle_minutes_is_found(stubbed: StubbedStage, path: str, calls: str) -> None:
    steps: Iterator[int] = loads.idle(stubbed.stage)
    next(steps)
    stubbed.transport.calls[path] = calls
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value.ruling.value == "does not hold"
    assert stop.value.value.figures["calls_repeated"] == 1


def test_rows_that_run_in_idle_minutes_neither_append_nor_read(stubbed: StubbedStage) -> None:
    """Else the functions would not be idle. The order of all rows says which ones run then."""
    from penstock.prove.all_rows import all_rows
    from penstock.prove.rows.deployed import deployed_rows

    first, _ = all_rows(1_000)
    names = [each.name for each in first]
    assert names[names.index("idle minutes") + 1 :] == [each.name for each in deployed_rows()]
    for row in deployed_rows():
        stubbed.run(row)
    assert stubbed.transport.sent == []


def test_run_has_no_row_twice_and_fits_its_budget() -> None:
    from penstock.prove.all_rows import all_rows

    rows = [row for phase in all_rows(120_000) for row in phase]
    assert len({each.name for each in rows}) == len(rows)
    assert sum(each.usd_max for each in rows) < 0.9
