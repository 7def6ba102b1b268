"""The alarms of a stage: few, on metrics that exist, and none for a single cold start that took too long."""

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from localstack.places import CHECKOUT
from penstock_cdk.alarms.failures import CALLS_FAILED, FAILING, RARE_FAILING, UNDONE
from penstock_cdk.service.functions import construct_name
from penstock_cdk.settings import STAGES
from penstock_core.routes import ROUTES
from penstock_handlers import dispatch, promote, sweep
from penstock_handlers.hourly import run_clean, run_tier
from penstock_handlers.upkeep import run_look_at_subscriptions, run_measure, run_retention
from penstock_service.adapters.memory.service import memory_instance
from tests.infra.conftest import Resources
from tests.infra.templates import functions_in, name_of, of_type

pytestmark = pytest.mark.synth

ALARMS = {
    "api-5xx": ("Penstock/{stage}", CALLS_FAILED),
    "concurrency": ("AWS/Lambda", "Throttles"),
    "log-writes-throttled": ("AWS/DynamoDB", "WriteThrottleEvents"),
    "produce-slow": ("AWS/Lambda", "Duration"),
    "functions-failing": ("Penstock/{stage}", FAILING),
    "runs-failed": ("Penstock/{stage}", RARE_FAILING),
    "segment-lost": ("Penstock", "segment_lost"),
    "zone-behind": ("Penstock", "zones_behind"),
    "messages-dead": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    "stream-dead": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    "job-runs-failed": ("AWS/SQS", "NumberOfMessagesSent"),
}
_API_STAGE = "AWS::ApiGatewayV2::Stage"
OF_REPAIRS = ("segment-lost", "zone-behind")
AGAIN_AND_AGAIN = {"api-5xx": 15, "concurrency": 15, "log-writes-throttled": 15, "functions-failing": 12}


def alarms_of(resources: Resources, stage: str) -> dict[str, dict[str, Any]]:
    found = of_type(resources, "AWS::CloudWatch::Alarm").values()
    return {alarm["AlarmName"].removeprefix(f"{STAGES[stage].name}-"): alarm for alarm in found}


def test_every_question_has_one_alarm(resources: Resources, stage: str) -> None:
    found = {name: (each["Namespace"], each["MetricName"]) for name, each in alarms_of(resources, stage).items()}
    expected = {name: (space.format(stage=STAGES[stage].name), metric) for name, (space, metric) in ALARMS.items()}
    if not STAGES[stage].repairs_zones:
        expected = {name: metric for name, metric in expected.items() if name not in OF_REPAIRS}
    assert found == (expected if STAGES[stage].has_alarms else {})


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_one_failure_of_one_minute_rings_nothing_that_a_cold_start_can_cause(resources: Resources, stage: str) -> None:
    alarms = alarms_of(resources, stage)
    for name, periods in AGAIN_AND_AGAIN.items():
        alarm = alarms[name]
        assert (alarm["Threshold"], alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (1, periods, 3)
        assert (alarm["Statistic"], alarm["TreatMissingData"]) == ("Sum", "notBreaching")


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_alarms_of_aws_metrics_name_the_resources_of_their_stage(resources: Resources, stage: str) -> None:
    found = {
        name: [(each["Name"], name_of(each["Value"])) for each in alarm.get("Dimensions", [])]
        for name, alarm in alarms_of(resources, stage).items()
        if alarm["Namespace"].startswith("AWS/") and alarm["Namespace"] != "AWS/SQS"
    }
    assert found == {
        "concurrency": [],
        "log-writes-throttled": [("TableName", "<TablesLog>")],
        "produce-slow": [("FunctionName", "<FunctionsProduceFunction>")],
    }


def counted(resources: Resources, function: str, line: Mapping[str, Any]) -> list[str]:
    """The metrics that count a line of the function's log."""
    return counted_of(resources, f"<Functions{function}Logs>", line)


def counted_of(resources: Resources, log_group: str, line: Mapping[str, Any]) -> list[str]:
    """The metrics that count a line of the log group."""
    found = []
    for each in of_type(resources, "AWS::Logs::MetricFilter").values():
        [transformation] = each["MetricTransformations"]
        if name_of(each["LogGroupName"]) == log_group and matches(each["FilterPattern"], line):
            assert transformation["MetricValue"] == "1"
            found.append(transformation["MetricName"])
    return found


def matches(pattern: str, line: Mapping[str, Any]) -> bool:
    """True if a JSON filter of CloudWatch matches the line. A field that is missing meets no comparison."""

    def compared(found: re.Match[str]) -> str:
        value: Any = line
        for name in found["field"].split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        wanted = json.loads(found["value"])
        if isinstance(wanted, str) and wanted.endswith("*"):
            assert found["operator"] == "="
            return str(isinstance(value, str) and value.startswith(wanted[:-1]))
        met = {"=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge}[found["operator"]]
        return str(value is not None and met(value, wanted))

    field, value = r"\$\.(?P<field>[\w.]+)", r"(?P<value>\"\w+(?:\.\w+)?\*?\"|\d+)"
    text = re.sub(rf"{field} (?P<operator>=|!=|>=|>) {value}", compared, pattern)
    text = text.strip("{ }")
    while text not in ("True", "False"):
        shorter = re.sub(r"\((True|False)\)", r"\1", text)
        shorter = re.sub(r"True && True", "True", shorter)
        shorter = re.sub(r"(?:False && (?:True|False)|True && False)", "False", shorter)
        if shorter == text:  # all that stood before an "or" is one word by now
            shorter = re.sub(r"(?:True \|\| (?:True|False)|False \|\| True)", "True", shorter)
            shorter = re.sub(r"False \|\| False", "False", shorter)
        assert shorter != text, f"{pattern} is no pattern of and, or, =, != and >"
        text = shorter
    return text == "True"


def test_pattern_of_a_filter_is_read_as_cloudwatch_reads_it() -> None:
    pattern = '{ (($.a = "x") && (($.n > 0) || ($.b.c != "y"))) || ($.d = "z") }'
    lines: list[dict[str, Any]] = [
        {"a": "x", "n": 1},
        {"a": "x", "b": {"c": "n"}},
        {"d": "z"},
        {"a": "x", "n": 0},
        {"a": "x", "b": {"c": "y"}},
        {"n": 1},
        {},
    ]
    assert [matches(pattern, line) for line in lines] == [True, True, True, False, False, False, False]


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_failures_of_each_function_are_counted_and_rare_ones_ring_with_the_first(
    resources: Resources, stage: str
) -> None:
    failed = {"type": "platform.report", "record": {"status": "timeout"}}
    functions = {construct_name(each["Handler"].split(".")[1]) for each in functions_in(resources).values()}
    found = {name: counted(resources, name, failed) for name in functions}
    rare = {"Sweep", "Hourly"}
    called = {construct_name(route.function) for route in ROUTES}
    usual = {name: [CALLS_FAILED] if name in called else [FAILING] for name in functions}
    assert found == usual | {name: [RARE_FAILING] for name in rare}
    alarm = alarms_of(resources, stage)["runs-failed"]
    assert (alarm["Threshold"], alarm["EvaluationPeriods"], alarm["Period"]) == (1, 1, 3600)
    succeeded = {"type": "platform.report", "record": {"status": "success"}}
    assert not any(counted(resources, name, succeeded) for name in functions)


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_work_that_a_run_leaves_undone_is_a_field_of_its_log_line(
    resources: Resources, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variables in STAGES[stage].environments_of_jobs.values():
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PENSTOCK_METRICS", "all")
    monkeypatch.setenv("PENSTOCK_METRIC_SERIES", "1,1")
    upkeep = (run_retention, run_look_at_subscriptions, run_measure)
    answered = {"upkeep": {name: value for run in upkeep for name, value in run(memory_instance()).items()}}
    answered |= {"hourly": run_tier(memory_instance()) | run_clean(memory_instance())}
    answered["sweep"] = sweep.run(memory_instance())
    _, answered["dispatch"] = dispatch.serve({"Records": []}, memory_instance())
    _, answered["promote"], _ = promote.serve({}, memory_instance())
    for name, undone in UNDONE.items():
        for field in undone:
            assert field in answered[name]
            rare = name in ("hourly", "sweep")
            expected = [RARE_FAILING if rare else FAILING]
            assert counted(resources, construct_name(name), {"message": "run", field: 1}) == expected
            assert counted(resources, construct_name(name), {"message": "run", field: 0}) == []


@pytest.mark.parametrize("stage", ["dev", "prod"])
@pytest.mark.parametrize(
    ("function", "line", "metric"),
    [
        ("Share", "dead_letters_stuck", RARE_FAILING),
        ("Deliver", "dead_letters_stuck", RARE_FAILING),
        ("Deliver", "push_dead_letters_stuck", RARE_FAILING),
        ("Deliver", "push_message_unreadable", FAILING),
        ("Dispatch", "push_event_unreadable", FAILING),
        ("Replicate", "repair_stream_late", FAILING),
        ("Deliver", "push_delivery_failed", FAILING),
        ("Deliver", "push_unreadable", RARE_FAILING),
        ("Deliver", "push_undecodable", RARE_FAILING),
        ("Deliver", "push_too_large", RARE_FAILING),
    ],
)
def test_records_that_cannot_be_moved_or_read_in_time_ring(
    resources: Resources, stage: str, function: str, line: str, metric: str
) -> None:
    is_there = function != "Replicate" or STAGES[stage].repairs_zones
    assert counted(resources, function, {"message": line}) == ([metric] if is_there else [])
    assert counted(resources, function, {"message": f"{line}s"}) == []


def alarm_of_metric(resources: Resources, stage: str, metric: str) -> list[str]:
    return [name for name, alarm in alarms_of(resources, stage).items() if alarm["MetricName"] == metric]


def alarms_of_last_queue(resources: Resources, stage: str, source: str) -> list[str]:
    """The alarms on the queue that gets what fails for good: of a queue, or of the stream of a function."""
    if source in (queues := of_type(resources, "AWS::SQS::Queue")):
        last = name_of(queues[source]["RedrivePolicy"]["deadLetterTargetArn"])
    else:
        mapping = of_type(resources, "AWS::Lambda::EventSourceMapping")[source]
        last = name_of(mapping["DestinationConfig"]["OnFailure"]["Destination"])
    wanted = f"{last[:-1]}.QueueName>"
    return [
        name
        for name, alarm in alarms_of(resources, stage).items()
        if any(name_of(each["Value"]) == wanted for each in alarm.get("Dimensions", []))
    ]


@pytest.mark.parametrize(
    ("source", "alarm"),
    [
        ("RepairQueuesRepairs", "messages-dead"),  # repairs-dead, until 0.1.0
        ("TimersSeconds", "messages-dead"),  # timers-dead
        ("RepairStream", "stream-dead"),  # repair-stream-dead
        ("PushSourceStream", "stream-dead"),  # push-dead
    ],
)
def test_what_fails_for_good_rings_at_once(
    zoned_resources: Resources, zoned_stage: str, source: str, alarm: str
) -> None:
    found = alarms_of_last_queue(zoned_resources, zoned_stage, source)
    assert found == ([alarm] if STAGES[zoned_stage].has_alarms else [])
    for name in found:
        rings = alarms_of(zoned_resources, zoned_stage)[name]
        assert (rings["MetricName"], rings["Threshold"]) == ("ApproximateNumberOfMessagesVisible", 1)
        assert (rings["EvaluationPeriods"], rings["Period"]) == (1, 60)


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_each_metric_that_filters_count_faults_in_has_one_alarm(resources: Resources, stage: str) -> None:
    """So the log lines of the tests above ring: among them what rang stream-age and batches-left-whole until 0.1.0."""
    assert alarm_of_metric(resources, stage, FAILING) == ["functions-failing"]
    assert alarm_of_metric(resources, stage, RARE_FAILING) == ["runs-failed"]
    assert alarm_of_metric(resources, stage, CALLS_FAILED) == ["api-5xx"]


@pytest.mark.parametrize("stage", ["dev", "prod"])
@pytest.mark.parametrize("function", sorted({construct_name(route.function) for route in ROUTES}))
def test_call_that_a_function_answers_by_a_defect_rings_whichever_way_it_came(
    resources: Resources, stage: str, function: str
) -> None:
    """No log of API Gateway has a call that invokes the function by Lambda's API."""

    def calls(line: Mapping[str, Any]) -> int:
        return counted_of(resources, f"<Functions{function}Logs>", line).count(CALLS_FAILED)

    assert [calls({"message": "request", "status": status}) for status in (200, 404, 429, 499, 500, 503)] == [
        0, 0, 0, 0, 1, 1,
    ]  # fmt: skip
    assert calls({"message": "run", "status": 500}) == 0
    assert calls({"type": "platform.report", "record": {"status": "timeout"}}) == 1
    assert calls({"type": "platform.report", "record": {"status": "success"}}) == 0


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_answer_of_api_gateway_rings_by_its_access_log(resources: Resources, stage: str) -> None:
    """So do calls that reach no function: one that Lambda throttles, or one without a permission."""
    fields = [json.loads(each["AccessLogSettings"]["Format"]) for each in of_type(resources, _API_STAGE).values()]
    groups = {name_of(each["AccessLogSettings"]["DestinationArn"]) for each in of_type(resources, _API_STAGE).values()}
    assert {each["status"] for each in fields} == {"$context.status"}  # in quotes, so a word
    assert groups == {"<ApiAccessLog>"}
    found = [counted_of(resources, "<ApiAccessLog>", {"status": status}) for status in ("200", "403", "500", "504")]
    assert found == [[], [], [CALLS_FAILED], [CALLS_FAILED]]


def test_page_of_operators_has_a_row_for_each_alarm() -> None:
    page = (CHECKOUT / "docs/how-to/operate.md").read_text()
    table = page.partition("## An alarm rang")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row.partition(", from")[0])}
    assert named == {*ALARMS}


def test_every_resource_that_takes_tags_names_its_stage(template: Callable[[str], dict[str, Any]], stage: str) -> None:
    tables = of_type(template(stage)["Resources"], "AWS::DynamoDB::Table").values()
    functions = functions_in(template(stage)["Resources"]).values()
    for each in (*tables, *functions):
        assert {"Key": "penstock:stage", "Value": STAGES[stage].name} in each["Tags"]
