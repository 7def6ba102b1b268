"""The HTTP API: it has the routes of docs/openapi.json, IAM checks each, and clients have policies."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template

from penstock_cdk.service.functions import construct_name
from penstock_cdk.service.grants import grants_of
from penstock_cdk.settings import STAGES, StageSettings
from penstock_core.log.inline import NO_ITEMS
from penstock_core.routes import ROUTE_BY_KEY, ROUTES
from tests.infra.conftest import Resources, entry_of, settings_named
from tests.infra.templates import name_of, of_type, permissions

pytestmark = pytest.mark.synth

OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.json"
METHODS = {"get", "post", "put", "patch", "delete", "head", "options"}
ZONED_OUTPUTS = ("RepairQueueUrl", "ZoneBBucket", "ZoneCBucket")
ARN = "arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>:<ApiHttpApi>/$default/"
CHANNELS = "<WakeUpsNamespace.ChannelNamespaceArn>"


def test_routes_are_the_operations_of_the_openapi_document(resources: Resources) -> None:
    assert OPENAPI.exists(), f"{OPENAPI} is missing: `make openapi` generates it"
    paths: dict[str, dict[str, Any]] = json.loads(OPENAPI.read_text())["paths"]
    documented = {f"{method.upper()} {path}" for path, item in paths.items() for method in item if method in METHODS}
    deployed = {route["RouteKey"] for route in of_type(resources, "AWS::ApiGatewayV2::Route").values()}
    assert deployed == documented == ROUTE_BY_KEY.keys()


def test_every_route_wants_a_signature_and_reaches_its_function(resources: Resources, stage: str) -> None:
    integrations = of_type(resources, "AWS::ApiGatewayV2::Integration")
    for route in of_type(resources, "AWS::ApiGatewayV2::Route").values():
        assert route["AuthorizationType"] == "AWS_IAM"
        integration = integrations[name_of(route["Target"]).removeprefix("integrations/").strip("<>")]
        function = ROUTE_BY_KEY[route["RouteKey"]].function.title().replace("_", "")
        assert name_of(integration["IntegrationUri"]) == entry_of(stage, function)
        assert integration["PayloadFormatVersion"] == "2.0"


def test_only_this_api_by_its_routes_and_the_schedules_may_call_the_functions(resources: Resources, stage: str) -> None:
    allowed = of_type(resources, "AWS::Lambda::Permission").values()
    by_route = [each for each in allowed if each["Principal"] == "apigateway.amazonaws.com"]
    assert len(by_route) == len({route.function for route in ROUTES})
    assert {each["Principal"] for each in allowed if each not in by_route} == {"events.amazonaws.com"}
    entries = {entry_of(stage, construct_name(name)) for name in grants_of(STAGES[stage])}
    assert {name_of(permission["FunctionName"]) for permission in allowed} <= entries
    for permission in by_route:
        assert permission["Principal"] == "apigateway.amazonaws.com"
        assert name_of(permission["SourceArn"]).endswith(":<ApiHttpApi>/*/*/*")


@pytest.mark.parametrize("stage", STAGES)
def test_api_takes_as_many_requests_as_the_stage_sets(template: Callable[[str], dict[str, Any]], stage: str) -> None:
    [deployed] = of_type(template(stage)["Resources"], "AWS::ApiGatewayV2::Stage").values()
    rate = STAGES[stage].request_rate
    assert (rate is None) == (stage == "local")
    assert deployed.get("DefaultRouteSettings") == (
        None if rate is None else {"ThrottlingRateLimit": rate.per_second, "ThrottlingBurstLimit": rate.burst}
    )


def test_readers_and_operators_get_less_than_half_of_the_requests_of_an_account(
    template: Callable[[str], dict[str, Any]], stage: str
) -> None:
    resources = template(stage)["Resources"]
    [deployed] = [each for each in resources.values() if each["Type"] == "AWS::ApiGatewayV2::Stage"]
    limits = deployed["Properties"].get("RouteSettings", {})
    limited = {"fetch", "records_fetch", "group_admin", "share_admin", "subscriptions", "quotas", "zones", "acls"}
    limited = limited if stage != "local" else set()
    assert set(limits) == {route.key for route in ROUTES if route.handler in limited}
    assert sum(each["ThrottlingRateLimit"] for each in limits.values()) < 5_000
    added = [name for name, each in resources.items() if each["Type"] == "AWS::ApiGatewayV2::Route"]
    awaited = {name for name in added if resources[name]["Properties"]["RouteKey"] in limits}
    assert awaited <= set(deployed.get("DependsOn", []))


def test_requests_are_logged(resources: Resources) -> None:
    [stage] = of_type(resources, "AWS::ApiGatewayV2::Stage").values()
    assert (stage["StageName"], stage["AutoDeploy"]) == ("$default", True)
    assert name_of(stage["AccessLogSettings"]["DestinationArn"]) == "<ApiAccessLog>"
    assert json.loads(stage["AccessLogSettings"]["Format"])["requestId"] == "$context.requestId"


def test_access_log_is_kept_with_the_data_and_never_in_the_way_of_the_next_stack(
    resources: Resources, stage: str
) -> None:
    [log] = [each for name, each in resources.items() if name == "ApiAccessLog"]
    assert log["DeletionPolicy"] == ("Retain" if STAGES[stage].keeps_data_on_delete else "Delete")
    prefix, own_id = log["Properties"]["LogGroupName"]["Fn::Join"][1]
    assert prefix == f"/aws/vendedlogs/{STAGES[stage].name}/access/"
    assert own_id == {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}
    assert log["Properties"]["RetentionInDays"] == {"local": 1, "dev": 7, "prod": 365}[stage]


@pytest.mark.parametrize(
    ("job", "routes"),
    [
        (
            "Produce",
            [
                "GET/v1/metadata",
                "POST/v1/produce",
                "POST/v1/topics/*/records",
                "GET/v1/topics/*/scheduled",
                "DELETE/v1/topics/*/scheduled/*",
            ],
        ),
        (
            "Consume",
            [
                "GET/v1/metadata",
                "GET/v1/topics/*",
                "GET/v1/topics/*/offsets",
                "POST/v1/fetch",
                "GET/v1/wake-ups",
                "GET/v1/topics/*/partitions/*/records",
                "POST/v1/groups/*/heartbeat",
                "POST/v1/groups/*/offsets",
                "GET/v1/groups/*/offsets",
                "GET/v1/groups/*/document",
                "PUT/v1/groups/*/document",
                "GET/v1/groups/*",
                "GET/v1/share-groups/*",
                "POST/v1/share-groups/*/records",
                "POST/v1/share-groups/*/acquire",
                "POST/v1/share-groups/*/acknowledge",
            ],
        ),
        ("Transact", ["GET/v1/metadata", "POST/v1/producers", "POST/v1/transactions"]),
        ("Admin", [f"{method}/v1/*" for method in {route.method for route in ROUTES}]),
    ],
)
def test_client_policy_allows_the_routes_of_its_job(
    resources: Resources, stage: str, job: str, routes: list[str]
) -> None:
    policies = {
        name_of(policy["ManagedPolicyName"]): policy
        for policy in of_type(resources, "AWS::IAM::ManagedPolicy").values()
    }
    prefix = {"penstock": "Penstock", "penstock-dev": "Penstock-Dev"}[STAGES[stage].name]
    region = STAGES[stage].region or "<AWS::Region>"
    assert set(policies) == {f"{prefix}{name}-{region}" for name in ("Produce", "Consume", "Transact", "Admin")}
    expected = {
        (
            "execute-api:Invoke",
            ARN.replace("<AWS::Region>", region) + re.sub(r"{\w+}", "*", route),
        )
        for route in routes
    }
    received = {("appsync:EventConnect", "<WakeUpsEventApi.ApiArn>"), ("appsync:EventSubscribe", CHANNELS)}
    allowed = permissions(policies[f"{prefix}{job}-{region}"]["PolicyDocument"]["Statement"])
    invoked = {(action, resource) for action, resource in allowed if action == "lambda:InvokeFunction"}
    assert bool(invoked) == STAGES[stage].direct  # tests/infra/test_direct.py tells them
    assert allowed - invoked == (expected | received if job in ("Consume", "Admin") else expected)


def test_outputs_name_what_clients_and_operators_need(template: Callable[[str], dict[str, Any]], stage: str) -> None:
    outputs = {name for name in template(stage)["Outputs"] if not name.startswith("Job")}
    catalog = {"Catalog"} if stage != "local" else set()  # of Glue, which the emulator only records
    assert outputs == catalog | {
        "ApiUrl", "ApiId", "ProducePolicyArn", "ConsumePolicyArn", "TransactPolicyArn",
        "AdminPolicyArn",
        *(("FunctionsArn",) if STAGES[stage].direct else ()),
        *(("SuperPrincipals",) if STAGES[stage].super_principals else ()),
        "AclDefault", "Access",
        "TopicsTable", "LogTable", "GroupsTable", "AccessLogGroup",
        "WakeUpHosts", "ZoneBuckets", "ZoneABucket", "ArchiveBucket", "ResultsBucket",
        "TimersQueueUrl", "TimerPlaces", "DeadMessagesQueueUrl", "DeliveriesQueueUrl", "DeadStreamQueueUrl",
        *(("InlineBytesMax",) if STAGES[stage].small_appends != NO_ITEMS else ()),
        *(("FailedRunsQueueUrl",) if STAGES[stage].has_alarms else ()),
        *(ZONED_OUTPUTS if STAGES[stage].repairs_zones else ()),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("region", "told", "share"), [("us-east-1", None, 1.0), ("eu-south-1", None, 0.25), ("eu-south-1", 10_000, 1.0)]
)
def test_rates_of_routes_leave_room_in_the_account_of_the_region(
    make_stack_of: Callable[[StageSettings], Stack], region: str, told: int | None, share: float
) -> None:
    settings = replace(settings_named(f"dev@{region}"), api_requests_per_s=told)
    [stage] = of_type(
        Template.from_stack(make_stack_of(settings)).to_json()["Resources"], "AWS::ApiGatewayV2::Stage"
    ).values()
    rates = {name: rate["ThrottlingRateLimit"] for name, rate in stage["RouteSettings"].items()}
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == 5_000 * share
    assert stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] == 2_500 * share
    assert rates["POST /v1/fetch"] == 2_500 * share
    assert sum(rates.values()) <= 10_000 * share / 2
