"""Bills a month of a stage that nobody uses, from its CloudFormation template.

Each scheduled function of the template runs once on an empty deployment, so its calls, log lines and metrics are
captured. Every other resource needs a rule here: a template with a type that has none is refused. So a new resource
cannot come without somebody's saying what it costs while it is idle.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest.mock import patch

from bench.bill.deployment import BilledDeployment, billed_deployment, billed_profile
from bench.bill.metered_calls import Lines
from bench.bill.priced_settings import Resources, key_usd_max, request_extras
from bench.report.result import Row
from penstock import prices
from penstock_cdk.storage_profile import Profile
from penstock_core.limits import KIB

SECONDS_PER_MONTH = prices.DAYS_PER_MONTH * 24 * 3_600
# Lambda keeps five long polls of 20 s on a queue that is empty ("Using Lambda with Amazon SQS").
QUEUE_POLLERS, QUEUE_POLL_S = 5, 20
# An instance that nobody calls for some minutes is gone: a run that comes less often begins with a cold start.
WARM_S, COLD_START_MS = 300, 1_500

# Types that cost nothing until somebody uses them.
FREE_WHILE_IDLE = (
    *("AWS::ApiGatewayV2::" + name for name in ("Api", "Authorizer", "Integration", "Route", "Stage")),
    *("AWS::AppSync::" + name for name in ("Api", "ChannelNamespace")),
    *("AWS::CodeDeploy::" + name for name in ("Application", "DeploymentConfig", "DeploymentGroup")),
    *("AWS::IAM::" + name for name in ("ManagedPolicy", "Policy", "Role")),
    *("AWS::Lambda::" + name for name in ("Alias", "EventInvokeConfig", "Function", "Permission", "Version")),
    *("AWS::Logs::" + name for name in ("LogGroup", "MetricFilter", "QueryDefinition", "ResourcePolicy")),
    *("AWS::S3::" + name for name in ("Bucket", "BucketPolicy")),
    *("AWS::S3Express::" + name for name in ("AccessPoint", "BucketPolicy", "DirectoryBucket")),
    *("AWS::SNS::" + name for name in ("Topic", "TopicPolicy")),
    *("AWS::SQS::" + name for name in ("Queue", "QueuePolicy")),
    "AWS::CDK::Metadata",
    "AWS::DynamoDB::Table",
    "AWS::EMRServerless::Application",
    "AWS::Glue::Database",
    "AWS::Glue::Job",
)


@dataclass(slots=True)
class IdleStage:
    """The bill of a month: dollars by line, and what they are for."""

    lines: Lines = field(default_factory=Lines)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def usd(self) -> float:
        """The sum of all lines."""
        return self.lines.total()

    @property
    def usd_without_alarms(self) -> float:
        """The sum without the alarms themselves."""
        return self.usd - self.lines["alarms"]

    def row(self, stage: str) -> Row:
        """The dollars of a month by line, and their sum."""
        shown = ("alarms", "metrics", "lambda", "queue polls")
        return {
            "stage": stage,
            **{f"{line.replace(' ', '_')}_usd": round(self.lines[line], 2) for line in shown},
            "other_usd": round(self.usd - sum(self.lines[line] for line in shown), 2),
            "sum_usd": round(self.usd, 2),
            "without_alarms_usd": round(self.usd_without_alarms, 2),
        }


def bill_idle_stage(resources: Resources, profile: Profile = "standard1", log_level: str = "INFO") -> IdleStage:
    """The month of an unused stage. Raises LookupError for a resource, or a setting of it, without a rule."""
    stage = IdleStage()
    request_extras(resources)  # refuses settings without a price
    stage.lines["other"] += key_usd_max(resources)
    for name, resource in resources.items():
        properties = resource.get("Properties", {})
        match resource["Type"]:
            case "AWS::CloudWatch::Alarm":
                _bill_alarm(stage, name, properties)
            case "AWS::CloudWatch::CompositeAlarm":
                stage.counts["composite alarms"] += 1
                stage.lines["alarms"] += prices.COMPOSITE_ALARMS.of(1)
            case "AWS::CloudWatch::Dashboard":
                stage.lines["other"] += prices.DASHBOARDS.of(1)
            case "AWS::KMS::Key":
                stage.lines["other"] += prices.KMS_KEYS.of(1)
            case "AWS::Lambda::EventSourceMapping":
                _bill_event_source(stage, name, properties)
            case "AWS::Events::Rule" | "AWS::Scheduler::Schedule":
                pass  # by _bill_schedules
            case kind if kind in FREE_WHILE_IDLE or kind.startswith("Custom::"):
                if "ProvisionedConcurrencyConfig" in properties:  # of an alias
                    raise LookupError(f"{name}: nothing tells what its instances cost: add them to idle_stage.py")
            case kind:
                raise LookupError(f"{name}: nothing tells what {kind} costs while it is idle: add it to idle_stage.py")
    with billed_deployment(billed_profile(profile), log_level) as deployment:
        _bill_schedules(stage, resources, deployment)
    return stage


def _bill_alarm(stage: IdleStage, name: str, alarm: Mapping[str, Any]) -> None:
    metrics = alarm.get("Metrics")
    if metrics is None:
        count, is_fast = 1, alarm["Period"] < 60
    else:
        if any(re.search(r"SELECT|SEARCH", each.get("Expression", "")) for each in metrics):
            raise LookupError(f"{name}: nothing tells how many metrics its query reads: add it to idle_stage.py")
        found = [each["MetricStat"] for each in metrics if "MetricStat" in each]
        count, is_fast = len(found), any(each["Period"] < 60 for each in found)
    stage.counts["alarms"] += 1
    stage.counts["alarm metrics"] += count
    stage.lines["alarms"] += (prices.FAST_ALARMS if is_fast else prices.ALARMS).of(count)


def _bill_event_source(stage: IdleStage, name: str, mapping: Mapping[str, Any]) -> None:
    source = str(mapping["EventSourceArn"])
    if "StreamArn" in source:
        return  # Lambda reads streams at no charge, and the filter drops what it does not match
    if mapping.get("Enabled") is False:
        return  # until the first delayed record, or the first subscription
    if "Queue" not in source and "Timers" not in source:
        raise LookupError(f"{name}: nothing tells what it costs to poll {source}: add it to idle_stage.py")
    receives = QUEUE_POLLERS * SECONDS_PER_MONTH / QUEUE_POLL_S
    stage.counts["empty receives"] += round(receives)
    stage.lines["queue polls"] += prices.SQS_REQUESTS.of(receives)


def _bill_schedules(stage: IdleStage, resources: Resources, deployment: BilledDeployment) -> None:
    runs: list[tuple[Mapping[str, Any], Mapping[str, Any], float]] = []
    for name, resource in resources.items():
        properties = resource.get("Properties", {})
        if "ScheduleExpression" not in properties or properties.get("State") == "DISABLED":
            continue
        targets = properties["Targets"] if "Targets" in properties else [properties["Target"]]
        period_s = schedule_period_s(properties["ScheduleExpression"])
        runs.extend(
            (_function_of(name, target, resources), json.loads(target.get("Input", "{}")), period_s)
            for target in targets
        )
        if resource["Type"] == "AWS::Scheduler::Schedule":
            stage.lines["other"] += prices.SCHEDULER_INVOCATIONS.of(len(targets) * SECONDS_PER_MONTH / period_s)
    shortest_s: dict[str, float] = {}
    for function, _, period_s in runs:
        shortest_s[function["Handler"]] = min(period_s, shortest_s.get(function["Handler"], period_s))
    for function, event, period_s in runs:
        _bill_runs(stage, deployment, function, event, period_s, is_cold=shortest_s[function["Handler"]] > WARM_S)


def _bill_runs(
    stage: IdleStage,
    deployment: BilledDeployment,
    function: Mapping[str, Any],
    event: Mapping[str, Any],
    period_s: float,
    *,
    is_cold: bool,
) -> None:
    """A month of runs of one function, from one run that is captured after a first one."""
    module = function["Handler"].removesuffix(".handler")
    handler = import_module(module).handler
    name = module.rpartition(".")[2]
    variables = function.get("Environment", {}).get("Variables", {})
    with patch.dict(os.environ, {name: value for name, value in variables.items() if isinstance(value, str)}):
        deployment.run(name, handler, event)
        deployment.take()
        deployment.published.clear()
        deployment.run(name, handler, event)
    bill = deployment.take()
    runs = SECONDS_PER_MONTH / period_s
    stage.lines.add({line: usd * runs for line, usd in bill.lines.items()})
    stage.counts["runs"] += round(runs)
    if is_cold:
        gb_s = function["MemorySize"] / KIB * COLD_START_MS / 1_000
        stage.lines["lambda"] += prices.LAMBDA_GB_SECONDS.of(gb_s * runs)
    share_of_hours = min(1.0, 3_600 / period_s)
    stage.counts["custom metrics"] += len(deployment.published)
    stage.lines["metrics"] += prices.METRICS.of(len(deployment.published) * share_of_hours)


def _function_of(name: str, target: Mapping[str, Any], resources: Resources) -> Mapping[str, Any]:
    """The properties of the function that a schedule starts, itself or by an alias."""
    text = str(target["Arn"])
    for logical_id, resource in resources.items():
        if f"'{logical_id}'" not in text:
            continue
        if resource["Type"] == "AWS::Lambda::Function":
            properties: Mapping[str, Any] = resource["Properties"]
            return properties
        if resource["Type"] == "AWS::Lambda::Alias":
            return _function_of(name, {"Arn": resource["Properties"]["FunctionName"]}, resources)
    raise LookupError(f"{name}: nothing tells what a run of {text} costs: add it to idle_stage.py")


def schedule_period_s(expression: str) -> float:
    """The seconds between two runs of `rate(…)`, or of a `cron(…)` that gives fixed minutes and hours.

    Raises LookupError for another.
    """
    if found := re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression):
        return int(found[1]) * {"minute": 60, "hour": 3_600, "day": 86_400}[found[2]]
    if found := re.fullmatch(r"cron\((\d+) (\S+) (\S+) \S+ \S+ \S+\)", expression):
        hours = 24 if found[2] == "*" else len(found[2].split(","))
        if re.fullmatch(r"\*|[\d,]+", found[2]) and found[3] in ("*", "?"):
            return 86_400 / hours
    raise LookupError(f"{expression}: nothing tells how often it runs: add it to idle_stage.py")
