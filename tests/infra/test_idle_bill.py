"""An unused stage costs what it may: the bill of its template, against the budget.

Run with -s to see what costs what.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from bench.bill.budgets import IDLE_STAGE_USD, IDLE_STAGE_WITHOUT_ALARMS_USD
from bench.bill.deployment import ACCESS_LOG_BYTES
from bench.bill.idle_stage import bill_idle_stage, schedule_period_s
from bench.bill.priced_settings import key_usd_max, request_extras
from bench.report.result import load_results
from bench.report.tables import to_console
from penstock import prices
from tests.infra.conftest import EVERY_SWITCH, settings_named

_FIELD_BYTES = {"path": 40, "userArn": 70, "requestId": 16, "sourceIp": 15, "requestTimeEpoch": 13}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prod", "dev@eu-central-1"])
def test_unused_stage_costs_at_most_its_budget(template: Callable[[str], dict[str, Any]], name: str) -> None:
    settings = settings_named(name)
    bill = bill_idle_stage(template(name)["Resources"], settings.profile, settings.log_level)
    Console(width=200).print(to_console("a month of an unused stage", [bill.row(name)]))
    assert bill.usd <= IDLE_STAGE_USD[name], bill
    assert bill.usd_without_alarms <= IDLE_STAGE_WITHOUT_ALARMS_USD[name], bill
    written = load_results()["bill"].find("an unused stage, a month", {"stage": name.partition("@")[0]}, "sum_usd")
    assert bill.usd == pytest.approx(written, abs=0.02), "run python -m bench.bill --write"


def test_bill_of_a_stage_rises_with_each_alarm_queue_and_dashboard() -> None:
    alarm = {"Type": "AWS::CloudWatch::Alarm", "Properties": {"Period": 60}}
    maths = {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {"Metrics": [{"Expression": "a + b"}, {"MetricStat": {"Period": 60}}] * 2},
    }
    queue = {
        "Type": "AWS::Lambda::EventSourceMapping",
        "Properties": {"EventSourceArn": {"Fn::GetAtt": ["RepairQueue", "Arn"]}},
    }
    dashboard = {"Type": "AWS::CloudWatch::Dashboard", "Properties": {}}
    bill = bill_idle_stage({"A": alarm, "B": maths, "Q": queue, "D": dashboard})
    assert bill.lines["alarms"] == pytest.approx(0.30)
    assert bill.lines["queue polls"] == pytest.approx(0.2592)
    assert bill.lines["other"] == pytest.approx(3.00)
    assert bill.usd_without_alarms == pytest.approx(bill.usd - 0.30)


@pytest.mark.parametrize(
    "resource",
    [
        {"Type": "AWS::Synthetics::Canary"},
        {"Type": "AWS::EMRServerless::Application", "Properties": {"InitialCapacity": [{}]}},
        {"Type": "AWS::CloudWatch::Alarm", "Properties": {"Metrics": [{"Expression": "SELECT MAX(x) FROM y"}]}},
        {"Type": "AWS::Events::Rule", "Properties": {"ScheduleExpression": "cron(0/5 * * * ? *)", "Targets": []}},
    ],
)
def test_resource_without_a_price_is_refused(resource: dict[str, Any]) -> None:
    with pytest.raises(LookupError, match=r"(idle_stage|priced_settings)\.py"):
        bill_idle_stage({"New": resource})


@pytest.mark.parametrize("name", ["prod", "dev@eu-central-1"])
def test_settings_add_nothing_to_the_captured_calls_of_a_request(
    template: Callable[[str], dict[str, Any]], name: str
) -> None:
    assert request_extras(template(name)["Resources"]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("row", EVERY_SWITCH, ids=map(str, EVERY_SWITCH))
def test_each_switch_that_costs_has_a_price(full_template: Callable[..., dict[str, Any]], row: tuple[str, ...]) -> None:
    assert request_extras(full_template(*row)["Resources"]) == {"traces": prices.TRACES.of(1)}


@pytest.mark.slow
@pytest.mark.parametrize(("row", "usd"), [(EVERY_SWITCH[0], 6.62), (EVERY_SWITCH[3], 4.91)], ids=["prod", "dev"])
def test_key_of_a_stage_that_all_its_roles_use_without_a_pause_has_a_price(
    full_template: Callable[..., dict[str, Any]], row: tuple[str, ...], usd: float
) -> None:
    """18 roles with 14 stores, and 17 with 11, ask once in five minutes."""
    assert key_usd_max(full_template(*row)["Resources"]) == pytest.approx(usd, abs=0.01)


def test_stage_without_a_key_pays_for_none(template: Callable[[str], dict[str, Any]]) -> None:
    assert key_usd_max(template("prod")["Resources"]) == 0


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("AWS::Lambda::Function", {"SnapStart": {"ApplyOn": "PublishedVersions"}}),
        ("AWS::DynamoDB::Table", {"ContributorInsightsSpecification": {"Enabled": True}}),
        ("AWS::ApiGatewayV2::Stage", {"DefaultRouteSettings": {"DetailedMetricsEnabled": True}}),
        ("AWS::S3::Bucket", {"MetricsConfigurations": [{"Id": "all"}]}),
        ("AWS::Lambda::Function", {"KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/1"}),
        ("AWS::Logs::MetricFilter", {"MetricTransformations": [{"DefaultValue": 0}]}),
        ("AWS::Lambda::EventSourceMapping", {"ProvisionedPollerConfig": {"MinimumPollers": 1}}),
    ],
)
def test_setting_without_a_price_is_refused(kind: str, properties: dict[str, Any]) -> None:
    with pytest.raises(LookupError, match=r"priced_settings\.py"):
        request_extras({"New": {"Type": kind, "Properties": properties}})


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [("rate(1 minute)", 60), ("rate(2 hours)", 7_200), ("cron(17 * * * ? *)", 3_600), ("cron(30 4 * * ? *)", 86_400)],
)
def test_period_of_a_schedule(expression: str, seconds: int) -> None:
    assert schedule_period_s(expression) == seconds


def test_line_of_the_access_log_is_no_longer_than_the_bill_takes_it_for(
    template: Callable[[str], dict[str, Any]],
) -> None:
    [stage] = [each for each in template("prod")["Resources"].values() if each["Type"] == "AWS::ApiGatewayV2::Stage"]
    text = json.dumps(json.loads(stage["Properties"]["AccessLogSettings"]["Format"]))
    line = re.sub(r"\$context\.(?:\w+\.)*(\w+)", lambda field: "x" * _FIELD_BYTES.get(field[1], 12), text)
    assert 200 < len(line) <= ACCESS_LOG_BYTES


def test_lambda_itself_logs_no_invocation_that_succeeds(template: Callable[[str], dict[str, Any]]) -> None:
    """The bill has no START, END and REPORT lines."""
    resources = template("prod")["Resources"].values()
    functions = [each["Properties"] for each in resources if each["Type"] == "AWS::Lambda::Function"]
    levels = {function["LoggingConfig"]["SystemLogLevel"] for function in functions}
    assert levels == {"WARN"}
