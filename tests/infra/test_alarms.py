"""The alarms of a stage: few, on metrics that exist, and none for a single cold start that took too long."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock_cdk.alarms.failures import FAILING, RARE_FAILING, UNDONE
from penstock_cdk.settings import JOB_ENVIRONMENTS, STAGES
from penstock_handlers import dispatch, look_at_subscriptions, retention, sweep, tier
from penstock_service.adapters.memory.service import memory_instance
from tests.infra.conftest import Resources
from tests.infra.templates import functions_in, name_of, of_type

pytestmark = pytest.mark.synth

ALARMS = {
    "api-5xx": ("AWS/ApiGateway", "5xx"),
    "concurrency": ("AWS/Lambda", "Throttles"),
    "log-writes-throttled": ("AWS/DynamoDB", "WriteThrottleEvents"),
    "produce-slow": ("AWS/Lambda", "Duration"),
    "stream-age": ("AWS/Lambda", "IteratorAge"),
    "functions-failing": ("Penstock/{stage}", FAILING),
    "runs-failed": ("Penstock/{stage}", RARE_FAILING),
    "segment-lost": ("Penstock", "segment_lost"),
    "zone-behind": ("Penstock", "zones_behind"),
    "repairs-dead": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    "repair-stream-dead": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    "timers-dead": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    "push-dead": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    "batches-left-whole": ("Penstock/{stage}", "compaction_batches_left_whole"),
    "job-runs-failed": ("AWS/SQS", "NumberOfMessagesSent"),
}
OF_REPAIRS = ("stream-age", "segment-lost", "zone-behind", "repairs-dead", "repair-stream-dead")
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
    stream = {"stream-age": [("FunctionName", "<FunctionsReplicateFunction>")]}
    assert found == {
        **(stream if STAGES[stage].repairs_zones else {}),
        "api-5xx": [("ApiId", "<ApiHttpApi>")],
        "concurrency": [],
        "log-writes-throttled": [("TableName", "<TablesLog>")],
        "produce-slow": [("FunctionName", "<FunctionsProduceFunction>")],
    }


def filters_of(resources: Resources) -> dict[tuple[str, str], str]:
    """Returns the metric of each filter on a function, by the function and the pattern."""
    found = {}
    for each in of_type(resources, "AWS::Logs::MetricFilter").values():
        group = re.fullmatch(r"<Functions(\w+)Logs>", name_of(each["LogGroupName"]))
        [transformation] = each["MetricTransformations"]
        if group is not None:
            assert transformation["MetricValue"] == "1"
            found[group[1], each["FilterPattern"]] = transformation["MetricName"]
    return found


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_failures_of_each_function_are_counted_and_rare_ones_ring_with_the_first(
    resources: Resources, stage: str
) -> None:
    failed = '{ ($.type = "platform.report") && ($.record.status != "success") }'
    found = {name: metric for (name, pattern), metric in filters_of(resources).items() if pattern == failed}
    functions = {each["Handler"].split(".")[1] for each in functions_in(resources).values()}
    assert {name.lower() for name in found} == {name.replace("_", "") for name in functions}
    rare = {name for name, metric in found.items() if metric == RARE_FAILING}
    of_zones = {"Scrub"} if STAGES[stage].repairs_zones else set()
    of_tiers = {"Tier"} if STAGES[stage].tiers_zones else set()
    assert rare == {"Sweep"} | of_zones | of_tiers
    alarm = alarms_of(resources, stage)["runs-failed"]
    assert (alarm["Threshold"], alarm["EvaluationPeriods"], alarm["Period"]) == (1, 1, 3600)


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_work_that_a_run_leaves_undone_is_a_field_of_its_log_line(
    resources: Resources, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variables in (JOB_ENVIRONMENTS["retention"], JOB_ENVIRONMENTS["sweep"], JOB_ENVIRONMENTS["tier"]):
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
    answered = {"retention": retention.run(memory_instance()), "sweep": sweep.run(memory_instance())}
    answered["tier"] = tier.run(memory_instance())
    answered["lookatsubscriptions"] = look_at_subscriptions.run(memory_instance())
    _, answered["dispatch"] = dispatch.serve({"Records": []}, memory_instance())
    found = {
        (name.lower(), re.findall(r"\$\.(\w+) > 0", pattern)[0]): metric
        for (name, pattern), metric in filters_of(resources).items()
        if '$.message = "run"' in pattern
    }
    expected = {(name.replace("_", ""), field) for name, field in UNDONE}
    missing = {"measure", *(() if STAGES[stage].tiers_zones else ("tier",))}  # a stage with alarms has no metrics yet
    assert set(found) == {each for each in expected if each[0] not in missing}
    assert all(field in answered[name] for name, field in found)
    assert found["retention", "retention_failed"] == FAILING
    assert found["sweep", "sweep_failed"] == RARE_FAILING
    assert found["lookatsubscriptions", "looks_failed"] == FAILING
    assert found["lookatsubscriptions", "partitions_stuck"] == FAILING


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_dead_letters_that_cannot_be_moved_ring_at_once(resources: Resources, stage: str) -> None:
    found = filters_of(resources)
    assert found["Share", '{ $.message = "dead_letters_stuck" }'] == RARE_FAILING
    assert found["Deliver", '{ $.message = "dead_letters_stuck" }'] == RARE_FAILING
    assert found["Deliver", '{ $.message = "push_dead_letters_stuck" }'] == RARE_FAILING
    assert found["Deliver", '{ $.message = "push_message_unreadable" }'] == FAILING
    assert found["Dispatch", '{ $.message = "push_event_unreadable" }'] == FAILING
    assert found["Deliver", '{ $.message = "push_delivery_failed" }'] == FAILING
    assert found["Deliver", '{ $.message = "push_unreadable" }'] == RARE_FAILING
    assert found["Deliver", '{ $.message = "push_undecodable" }'] == RARE_FAILING
    assert found["Deliver", '{ $.message = "push_too_large" }'] == RARE_FAILING


def test_every_resource_that_takes_tags_names_its_stage(template: Callable[[str], dict[str, Any]], stage: str) -> None:
    tables = of_type(template(stage)["Resources"], "AWS::DynamoDB::Table").values()
    functions = functions_in(template(stage)["Resources"]).values()
    for each in (*tables, *functions):
        assert {"Key": "penstock:stage", "Value": STAGES[stage].name} in each["Tags"]
