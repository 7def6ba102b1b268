"""Rights on topics and share groups: each names its topic or group wherever IAM can see it."""

import json
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Annotations, Match, Template
from cdk_nag import AwsSolutionsChecks

from bench.bill.synthesized import empty_shipment
from penstock_cdk import Penstock
from penstock_cdk.principals import principal_name
from penstock_cdk.service.functions import construct_name
from penstock_cdk.settings import STAGES, StageSettings
from penstock_core.routes import ROUTES, functions_of
from tests.infra.conftest import resources_of
from tests.infra.templates import functions_in, name_of, of_type, permissions

pytestmark = pytest.mark.synth

CHANNELS = "<WakeUpsNamespace.ChannelNamespaceArn>"


@pytest.fixture
def queue(tmp_path: Path) -> Penstock:
    stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region="eu-west-1"))
    settings = STAGES["prod"]
    return Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, tmp_path))


def allowed(queue: Penstock, grant: Callable[[iam.IGrantable], object]) -> set[str]:
    """What a role may do after the grant: `GET /v1/…` for a route, and `action on resource` for the rest."""
    role = iam.Role(Stack.of(queue), "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    grant(role)
    policies = of_type(resources_of(dict(Template.from_stack(Stack.of(queue)).to_json())), "AWS::IAM::Policy")
    [policy] = [each for each in policies.values() if [name_of(role) for role in each["Roles"]] == ["<App>"]]
    return {
        _route(resource) if action == "execute-api:Invoke" else f"{action} on {resource}"
        for action, resource in permissions(policy["PolicyDocument"]["Statement"])
    }


def _route(resource: str) -> str:
    api, _, route = resource.partition("/$default/")
    assert api.endswith(":<ApiHttpApi>"), "the route is one of this API"
    method, _, path = route.partition("/")
    return f"{method} /{path}"


def _alias(function: str, job: str) -> str:
    return f"lambda:InvokeFunction on <DirectCalls{function}Direct{job}>"


PRODUCE_JSON = {
    "GET /v1/metadata",
    "POST /v1/topics/orders/records",
    "GET /v1/topics/orders/scheduled",
    "DELETE /v1/topics/orders/scheduled/*",
}
READ_JSON = {
    "GET /v1/metadata",
    "GET /v1/topics/orders",
    "GET /v1/topics/orders/offsets",
    "GET /v1/topics/orders/partitions/*/records",
}
WOKEN = {
    "appsync:EventConnect on <WakeUpsEventApi.ApiArn>",
    f"appsync:EventSubscribe on {CHANNELS}",
}
GROUP = {
    "POST /v1/groups/workers/heartbeat",
    "POST /v1/groups/workers/offsets",
    "GET /v1/groups/workers/offsets",
    "GET /v1/groups/workers/document",
    "PUT /v1/groups/workers/document",
    "GET /v1/groups/workers",
}


def test_producer_may_produce_to_its_topic(queue: Penstock) -> None:
    topic = queue.topic("orders")
    assert allowed(queue, topic.grant_produce) == PRODUCE_JSON | {"POST /v1/produce", _alias("Produce", "Produce")}


@pytest.mark.minutes
def test_producer_of_json_is_held_to_its_topic(queue: Penstock) -> None:
    topic = queue.topic("orders")
    assert allowed(queue, lambda role: topic.grant_produce(role, json_only=True)) == PRODUCE_JSON


def test_consumer_may_read_its_topic_and_work_in_its_group(queue: Penstock) -> None:
    topic = queue.topic("orders")
    found = allowed(queue, lambda role: topic.grant_consume(role, group="workers"))
    direct = {_alias("Fetch", "Consume"), _alias("Groups", "Consume")}
    assert found == READ_JSON | WOKEN | GROUP | {"POST /v1/fetch", "GET /v1/wake-ups"} | direct


def test_consumer_without_a_group_works_in_none(queue: Penstock) -> None:
    topic = queue.topic("orders")
    fetches = {"POST /v1/fetch", "GET /v1/wake-ups", _alias("Fetch", "Consume")}
    assert allowed(queue, topic.grant_consume) == READ_JSON | WOKEN | fetches


@pytest.mark.minutes
def test_consumer_of_json_is_held_to_its_topic(queue: Penstock) -> None:
    topic = queue.topic("orders")
    found = allowed(queue, lambda role: topic.grant_consume(role, group="workers", json_only=True))
    assert found == READ_JSON | GROUP


def test_share_consumer_is_held_to_its_group(queue: Penstock) -> None:
    group = queue.share_group("workers", [queue.topic("orders")])
    assert allowed(queue, group.grant_consume) == {
        "GET /v1/metadata",
        "GET /v1/wake-ups",
        "GET /v1/share-groups/workers",
        "POST /v1/share-groups/workers/records",
        "POST /v1/share-groups/workers/acquire",
        "POST /v1/share-groups/workers/acknowledge",
        "appsync:EventConnect on <WakeUpsEventApi.ApiArn>",
        f"appsync:EventSubscribe on {CHANNELS}",
        _alias("Share", "Consume"),
    }


@pytest.mark.parametrize("kind", ["produce", "consume", "share"])
def test_grantee_that_may_invoke_functions_may_ask_which_they_are(queue: Penstock, kind: str) -> None:
    """Else a client of `auto` would stay on HTTP for ever: the answer of `GET /v1/metadata` tells it."""
    topic = queue.topic("orders")
    grants = {"produce": topic.grant_produce, "consume": topic.grant_consume}
    found = allowed(queue, grants.get(kind) or queue.share_group("workers", [topic]).grant_consume)
    assert any("DirectCalls" in each for each in found)
    assert "GET /v1/metadata" in found


@pytest.mark.parametrize(
    ("changes", "aliases"),
    [
        ({"acl_default": "allow"}, {("Produce", "Produce"), ("Fetch", "Consume")}),
        ({"direct": False}, set()),
    ],
    ids=["allow", "off"],
)
def test_grant_invokes_no_function_that_would_widen_it(
    tmp_path: Path, changes: dict[str, Any], aliases: set[tuple[str, str]]
) -> None:
    """Where no rule narrows a grantee, IAM must: it sees groups by HTTP only."""
    stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region="eu-west-1"))
    settings = replace(STAGES["prod"], **changes)
    queue = Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, tmp_path))
    topic, group = queue.topic("orders"), queue.share_group("workers", ["orders"])

    def grant(role: iam.IGrantable) -> None:
        topic.grant_produce(role)
        topic.grant_consume(role, group="workers")
        group.grant_consume(role)

    invoked = {each for each in allowed(queue, grant) if each.startswith("lambda:")}
    assert invoked == {_alias(*each) for each in aliases}


def test_admin_may_call_every_route_and_publish_nothing(queue: Penstock) -> None:
    found = allowed(queue, queue.grant_admin)
    for route in ROUTES:
        assert any(fnmatchcase(route.key, each) for each in found)
    assert {each.partition(" on ")[0] for each in found if " /v1/" not in each} == {
        "appsync:EventConnect",
        "appsync:EventSubscribe",
        "lambda:InvokeFunction",
    }
    assert {each for each in found if each.startswith("lambda:")} == {
        _alias(construct_name(function), "Admin") for function in functions_of("direct-admin")
    }


def test_function_finds_the_service_in_its_environment(queue: Penstock) -> None:
    function = lambda_.Function(
        Stack.of(queue),
        "Sender",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("handler = print"),
    )
    queue.add_environment(function)
    template = dict(Template.from_stack(Stack.of(queue)).to_json())
    resources, outputs = resources_of(template), template["Outputs"]
    variables = resources["Sender"]["Properties"]["Environment"]["Variables"]
    assert {name: name_of(value) for name, value in variables.items()} == {
        "PENSTOCK_URL": name_of(outputs["ApiUrl"]["Value"]),
        "PENSTOCK_FUNCTIONS": name_of(outputs["FunctionsArn"]["Value"]),
    }


def test_aws_solutions_rules_hold_for_a_principal_with_all_rights(queue: Penstock) -> None:
    role = iam.Role(Stack.of(queue), "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    orders = queue.topic("orders")
    orders.grant_produce(role)
    orders.grant_consume(role, group="workers")
    queue.share_group("sharers", [orders]).grant_consume(role)
    queue.grant_admin(role)
    report = AwsSolutionsChecks().validate_scope(Stack.of(queue))
    assert not [violation.rule_name for violation in report.violations]


@pytest.mark.parametrize("group", ["*", "", "bill?ng", "a/b"])
def test_right_on_every_group_is_refused(queue: Penstock, group: str) -> None:
    topic = queue.topic("orders")
    with pytest.raises(ValueError, match="group"):
        allowed(queue, lambda role: topic.grant_consume(role, group=group))


def test_grants_write_access_rules(tmp_path: Path) -> None:
    stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region="eu-west-1"))
    settings = STAGES["prod"]
    shipment = empty_shipment(settings, tmp_path)
    ops, app = (
        iam.Role(stack, name, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")) for name in ("Ops", "App")
    )
    queue = Penstock(
        stack,
        "Default",
        settings=settings,
        shipment=shipment,
        acl_default="deny",
        super_principals=[ops, "arn:aws:iam::1:user/o"],
    )
    orders = queue.topic("orders")
    orders.grant_produce(app)
    orders.grant_consume(app, group="billing")
    orders.grant_consume(app, group="billing")
    queue.share_group("workers", [orders]).grant_consume(app)
    queue.grant_admin(app)
    resources = resources_of(dict(Template.from_stack(stack).to_json()))
    rules = [name_of(each["Rules"]) for each in of_type(resources, "Custom::PenstockAcls").values()]
    rights = {(rule["operation"], rule["resource"]) for text in rules for rule in json.loads(text)}
    assert {rule["principal"] for text in rules for rule in json.loads(text)} == {"<App>"}
    assert rights == {
        ("write", "topic:orders"),
        ("read", "topic:orders"),
        ("read", "group:billing"),
        ("read", "share_group:workers"),
        ("all", "*"),
        ("read", "topic:_audit"),
    }
    assert len(rules) == len(rights)
    [produce] = [each for each in functions_in(resources).values() if ".produce." in each["Handler"]]
    variables = produce["Environment"]["Variables"]
    assert variables["PENSTOCK_ACL_DEFAULT"] == "deny"
    assert json.loads(name_of(variables["PENSTOCK_SUPER_PRINCIPALS"])) == ["<Ops>", "arn:aws:iam::1:user/o"]
    outputs = Template.from_stack(stack).to_json()["Outputs"]  # for programs that embed the service
    assert outputs["AclDefault"]["Value"] == "deny"
    assert outputs["SuperPrincipals"]["Value"] == variables["PENSTOCK_SUPER_PRINCIPALS"]


def test_new_stages_refuse_what_no_rule_allows() -> None:
    assert StageSettings(name="a").acl_default == "deny"
    assert {name: settings.acl_default for name, settings in STAGES.items()} == {
        "local": "allow",
        "dev": "allow",
        "prod": "deny",
    }


def test_template_tells_what_no_rule_is_about_and_how_to_grant(
    template: Callable[[str], dict[str, Any]], stage: str
) -> None:
    outputs = template(stage)["Outputs"]
    assert outputs["AclDefault"]["Value"] == STAGES[stage].acl_default
    told = outputs["Access"]["Value"]
    assert told.startswith("refused" if STAGES[stage].acl_default == "deny" else "allowed")
    assert "penstock acls add PRINCIPAL" in told
    for function in functions_in(resources_of(template(stage))).values():
        if ".fetch." in function["Handler"]:
            assert function["Environment"]["Variables"]["PENSTOCK_ACL_DEFAULT"] == STAGES[stage].acl_default


def test_cdk_warns_of_a_stage_in_which_only_its_app_makes_rules(
    make_stack_of: Callable[[StageSettings], Stack],
) -> None:
    found = [
        Annotations.from_stack(make_stack_of(settings)).find_warning("*", Match.string_like_regexp("super_principals"))
        for settings in (
            STAGES["prod"],
            replace(STAGES["prod"], super_principals=("arn:aws:iam::1:role/ops",)),
            replace(STAGES["prod"], acl_default="allow"),
        )
    ]
    assert [len(each) for each in found] == [1, 0, 0]


def test_principal_without_an_arn_is_refused() -> None:
    with pytest.raises(ValueError, match="has no ARN"):
        principal_name(iam.ServicePrincipal("lambda.amazonaws.com"))
