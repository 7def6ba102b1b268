"""The rows about the deployed resources, each with answers of AWS by which it holds, and does not."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.prove import proven_stage
from penstock.prove.proof import Proof, Steps
from penstock.prove.proven_stage import ProvenStage
from penstock.prove.rows import deployed
from tests.sdk.prove.stubbed_stage import FUNCTIONS, LIVE, MAPPINGS, URL, AwsAnswer, StubbedStage, resources

DISPATCH = {
    "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:penstock-dispatch:live",
    "EventSourceArn": "arn:aws:dynamodb:us-east-1:123456789012:table/log/stream/2026",
    "State": "Enabled",
    "MaximumRetryAttempts": -1,
    "MaximumRecordAgeInSeconds": 86_400,
    "FilterCriteria": {"Filters": [{"Pattern": "{}"}]},
}
PROMOTE = {
    "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:penstock-promote",
    "EventSourceArn": "arn:aws:sqs:us-east-1:123456789012:timers",
    "State": "Disabled",
}


def _pollers(dispatch: Mapping[str, Any], promote: Mapping[str, Any] = PROMOTE) -> dict[str, AwsAnswer]:
    found = dict(zip(MAPPINGS, (dispatch, promote), strict=True))
    return {"lambda.GetEventSourceMapping": lambda asked: found[asked["UUID"]]}


def _alias(version: str, **more: Any) -> dict[str, AwsAnswer]:
    return {
        "cloudformation.ListStackResources": {"StackResourceSummaries": resources(LIVE)},
        "lambda.GetAlias": {"FunctionVersion": version, **more},
        "lambda.ListVersionsByFunction": {
            "Versions": [{"Version": each} for each in ("$LATEST", "9", "10")],
        },
    }


def _runs(attempts: AwsAnswer, loop: str = "Allow") -> dict[str, AwsAnswer]:
    return {
        "lambda.GetFunctionEventInvokeConfig": attempts,
        "lambda.GetFunctionRecursionConfig": {"RecursiveLoop": loop},
    }


def _quotas(told: str = '{"account_concurrency": 1000, "api_requests_per_s": null}') -> dict[str, AwsAnswer]:
    limit = {"ConcurrentExecutions": 1_000, "UnreservedConcurrentExecutions": 500}
    return {
        "sts.GetCallerIdentity": {"Arn": "arn:aws:iam::123456789012:user/ann", "Account": "123456789012"},
        "lambda.GetAccountSettings": {"AccountLimit": limit},
        "apigateway.GetAccount": {"throttleSettings": {"rateLimit": 10_000.0}},
        "dynamodb.DescribeLimits": {"TableMaxWriteCapacityUnits": 40_000, "TableMaxReadCapacityUnits": 40_000},
        "cloudwatch.DescribeAlarms": {"MetricAlarms": []},
        "cloudformation.GetTemplate": {"TemplateBody": f'{{"Metadata": {{"Penstock": {_quoted(told)}}}}}'},
    }


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def _throttles(routes: Mapping[str, float], default: float = 5_000, account: float = 10_000) -> dict[str, AwsAnswer]:
    settings = {route: {"ThrottlingRateLimit": rate} for route, rate in routes.items()}
    return {
        "apigatewayv2.GetStage": {
            "StageName": "$default",
            "RouteSettings": settings,
            "DefaultRouteSettings": {"ThrottlingRateLimit": default},
        },
        "apigateway.GetAccount": {"throttleSettings": {"rateLimit": account}},
    }


def _lists(with_prefix: AwsAnswer, folder: str = "2026-11-29-01/") -> dict[str, AwsAnswer]:
    def listed(asked: Mapping[str, Any]) -> Any:
        return with_prefix if "Prefix" in asked else {"CommonPrefixes": [{"Prefix": folder}]}

    return {"s3.ListObjectsV2": listed}


def _view(view: str) -> dict[str, AwsAnswer]:
    return {
        "dynamodb.DescribeTable": {"Table": {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": view}}}
    }


def _policies(document: str) -> dict[str, AwsAnswer]:
    return {"logs.DescribeResourcePolicies": {"resourcePolicies": [{"policyName": "p", "policyDocument": document}]}}


def _metrics(*names: str) -> dict[str, AwsAnswer]:
    def values(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        assert asked["Dimensions"] == [{"Name": "service", "Value": "penstock"}]
        return {"Datapoints": [{"SampleCount": 2.0}] if asked["MetricName"] in names else []}

    return {"cloudwatch.GetMetricStatistics": values}


def _alarm(state: str) -> dict[str, AwsAnswer]:
    return {"cloudwatch.DescribeAlarms": {"MetricAlarms": [{"AlarmName": "penstock-api-5xx", "StateValue": state}]}}


def _lines(*messages: str) -> dict[str, AwsAnswer]:
    def filtered(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        is_produce = asked["logGroupName"] == "/aws/lambda/penstock-produce"
        return {"events": [{"message": each} for each in messages] if is_produce else []}

    return {"logs.FilterLogEvents": filtered}


ALL_METRICS = ("requests_served", "request_duration", "storage_calls_sent")
HOLDS: list[tuple[Callable[[ProvenStage], Proof | Steps], dict[str, AwsAnswer]]] = [
    (deployed.pollers, _pollers(DISPATCH)),
    (deployed.stream, _view("NEW_AND_OLD_IMAGES")),
    (deployed.share_words, {"dynamodb.UpdateItem": "ConditionalCheckFailedException"}),
    (deployed.releases, _alias("10")),
    (deployed.scheduled_runs, _runs({"MaximumRetryAttempts": 0})),
    (deployed.throttles, _throttles({"POST /v1/fetch": 2_500})),
    (deployed.directory_lists, _lists("InvalidRequest")),
    (deployed.access_log, _policies("/aws/vendedlogs/*")),
    (deployed.metrics, _metrics(*ALL_METRICS)),
    (deployed.alarms, _alarm("OK")),
    (deployed.denied_lines, _lines()),
    (deployed.failed_invocations, _lines()),
]
DOES_NOT: list[tuple[Callable[[ProvenStage], Proof | Steps], dict[str, AwsAnswer], str]] = [
    (deployed.pollers, _pollers({**DISPATCH, "State": "Disabled"}), "dispatch is Disabled"),
    (deployed.pollers, _pollers({**DISPATCH, "MaximumRetryAttempts": 3}), "attempts and age (3, 86400)"),
    (deployed.pollers, _pollers({**DISPATCH, "FilterCriteria": {}}), "dispatch has"),
    (deployed.stream, _view("NEW_IMAGE"), "NEW_IMAGE"),
    (deployed.share_words, {"dynamodb.UpdateItem": "ValidationException"}, "ValidationException"),
    (deployed.share_words, {"dynamodb.UpdateItem": {}}, "made the update"),
    (deployed.releases, _alias("9"), "is at 9, the newest is 10"),
    (deployed.releases, _alias("10", RoutingConfig={"AdditionalVersionWeights": {"11": 0.1}}), "0.1"),
    (deployed.scheduled_runs, _runs({"MaximumRetryAttempts": 1}), "tried 1 times more"),
    (deployed.scheduled_runs, _runs("ResourceNotFoundException"), "tried 2 times more"),
    (deployed.scheduled_runs, _runs({"MaximumRetryAttempts": 0}, "Terminate"), "RecursiveLoop is Terminate"),
    (deployed.throttles, _throttles({}), "POST /v1/fetch has None"),
    (deployed.throttles, _throttles({"POST /v1/fetch": 2_500}, account=2_500), "the account 2,500"),
    (deployed.directory_lists, _lists({"Contents": []}), "gets a list"),
    (deployed.directory_lists, _lists("InvalidRequest", folder="aa/"), "aa/"),
    (deployed.access_log, _policies("log-group:/aws/vendedlogs/penstock/access/1:*"), "1 name the access log"),
    (deployed.metrics, _metrics("requests_served"), "requests_served 2, request_duration 0"),
    (deployed.alarms, _alarm("ALARM"), "ringing: penstock-api-5xx"),
    (deployed.denied_lines, _lines("AccessDeniedException"), "penstock-produce: AccessDeniedException"),
    (deployed.failed_invocations, _lines("platform.report"), "1 lines of"),
]


@pytest.mark.parametrize(("row", "answers"), HOLDS, ids=lambda each: getattr(each, "__name__", ""))
def test_row_holds(
    stubbed: StubbedStage, row: Callable[[ProvenStage], Proof | Steps], answers: dict[str, AwsAnswer]
) -> None:
    stubbed.aws.answers |= answers
    found = stubbed.ask(row)
    assert found.ruling.value == "holds", found.fact


@pytest.mark.parametrize(("row", "answers", "told"), DOES_NOT, ids=lambda each: getattr(each, "__name__", ""))
def test_row_does_not_hold(
    stubbed: StubbedStage, row: Callable[[ProvenStage], Proof | Steps], answers: dict[str, AwsAnswer], told: str
) -> None:
    stubbed.aws.answers |= answers
    found = stubbed.ask(row)
    assert found.ruling.value == "does not hold"
    assert told in found.fact


def _quoted_stage(tmp_path: Path, answers: dict[str, AwsAnswer]) -> Proof:
    stubbed = StubbedStage(tmp_path)
    stack = stubbed.aws.answers["cloudformation.DescribeStacks"]
    assert isinstance(stack, dict)
    stack["Stacks"][0]["Outputs"].append({"OutputKey": "ApiUrl", "OutputValue": URL})
    stubbed.aws.answers |= answers
    return stubbed.ask(deployed.quotas)


@pytest.mark.parametrize(
    ("change", "ruling", "told"),
    [
        ({}, "holds", "1,000 instances and 10,000 requests a second"),
        (_quotas('{"account_concurrency": 3000, "api_requests_per_s": null}'), "does not hold", "=3000"),
        (_quotas('{"account_concurrency": null, "api_requests_per_s": 20000}'), "does not hold", "=20000"),
        ({"apigateway.GetAccount": {"throttleSettings": {"rateLimit": 500.0}}}, "does not hold", "API rate"),
        ({"lambda.GetAccountSettings": "AccessDeniedException"}, "unknown", "needs lambda:GetAccountSettings"),
    ],
)
def test_quotas_are_the_doctors_and_what_the_stage_was_told(
    tmp_path: Path, change: dict[str, AwsAnswer], ruling: str, told: str
) -> None:
    found = _quoted_stage(tmp_path, {**_quotas(), **change})
    assert found.ruling.value == ruling, found.fact
    assert told in found.fact


def test_stage_without_versions_has_no_releases(stubbed: StubbedStage) -> None:
    assert stubbed.ask(deployed.releases).ruling.value == "left out"


def test_functions_are_those_of_the_stage(stubbed: StubbedStage) -> None:
    assert stubbed.stage.functions == tuple(sorted(f"penstock-{each}" for each in FUNCTIONS))


def test_logs_are_read_from_the_begin_of_the_run(stubbed: StubbedStage) -> None:
    stubbed.aws.answers |= _lines()
    stubbed.ask(deployed.denied_lines)
    asked = [params for name, params in stubbed.aws.asked if name == "logs.FilterLogEvents"]
    assert len(asked) == len(FUNCTIONS)
    assert {each["startTime"] for each in asked} == {stubbed.stage.began_at_ms}
    assert {each["filterPattern"] for each in asked} == {"%AccessDenied%"}, "DynamoDB says AccessDeniedException"


def test_logs_that_never_end_are_unknown_within_the_time_of_the_row(
    stubbed: StubbedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 1_000)
    for module in (deployed, proven_stage):
        monkeypatch.setattr(module, "monotonic_ms", lambda: next(clock))
    stubbed.aws.answers["logs.FilterLogEvents"] = lambda _: {"events": [], "nextToken": f"more-{next(clock)}"}
    found = stubbed.ask(deployed.denied_lines)
    assert (found.ruling.value, "penstock-produce" in found.fact) == ("unknown", True)
    assert len([name for name, _ in stubbed.aws.asked if name == "logs.FilterLogEvents"]) < 30


def test_metrics_that_come_late_are_waited_for(stubbed: StubbedStage) -> None:
    looks = iter([False] * 3 + [True] * 3)
    stubbed.aws.answers["cloudwatch.GetMetricStatistics"] = lambda _: {
        "Datapoints": [{"SampleCount": 1.0}] if next(looks) else []
    }
    assert stubbed.ask(deployed.metrics).ruling.value == "holds"
    assert stubbed.waits == [30.0]
