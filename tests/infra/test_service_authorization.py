"""Each grant of the templates is one that AWS knows: its actions, their resources, and their condition keys."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template

from bench.bill.synthesized import empty_shipment
from penstock_cdk import Penstock
from penstock_cdk.settings import STAGES
from tests.infra.as_deployed import Deployed
from tests.infra.conftest import EVERY_SWITCH
from tests.infra.service_authorization import mistakes

NAMESPACE = "arn:aws:appsync:eu-west-1:123456789012:apis/abc/channelNamespace/wake"


def _statement(action: str, resource: str | list[str], **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("appsync:EventPublish", NAMESPACE),
        ("appsync:EventConnect", "arn:aws:appsync:eu-west-1:123456789012:apis/abc"),
        ("s3:GetObject", "arn:aws:s3:::bucket/*"),
        ("logs:PutLogEvents", "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/a:*"),
        ("execute-api:Invoke", "arn:aws:execute-api:eu-west-1:123456789012:abc/$default/GET/v1/topics/*"),
        ("lambda:ListEventSourceMappings", "*"),
    ],
)
def test_grant_that_aws_knows_has_no_mistake(action: str, resource: str) -> None:
    assert list(mistakes(_statement(action, resource))) == []


@pytest.mark.parametrize(
    ("action", "resource", "told"),
    [
        ("appsync:EventPublish", f"{NAMESPACE}/*", "asks for"),
        ("appsync:EventSubscribe", f"{NAMESPACE}/0123/*", "asks for"),
        ("appsync:EventConnect", NAMESPACE, "asks for"),
        ("s3:GetObject", "arn:aws:s3:::bucket", "asks for"),
        ("sqs:SendMessageBatch", "arn:aws:sqs:eu-west-1:123456789012:queue", "is no action"),
        ("sqs:sendmessage", "arn:aws:sqs:eu-west-1:123456789012:queue", "is no action"),
        ("lambda:ListEventSourceMappings", "arn:aws:lambda:eu-west-1:123456789012:function:a", "no resources to name"),
    ],
)
def test_grant_that_aws_would_never_find_true_is_told(action: str, resource: str, told: str) -> None:
    assert told in " ".join(mistakes(_statement(action, resource)))


def test_resource_that_no_action_has_and_unknown_keys_are_told() -> None:
    other = "arn:aws:sqs:eu-west-1:123456789012:queue"
    assert list(mistakes(_statement("appsync:EventPublish", [NAMESPACE, other]))) == [
        f"{other} is a resource of none of appsync:EventPublish"
    ]
    condition = {"StringEquals": {"dynamodb:LeadingKeys": "a", "aws:SourceVpce": "vpce-1"}}
    assert list(mistakes(_statement("sqs:SendMessage", other, Condition=condition))) == [
        "sqs:SendMessage knows no condition key dynamodb:LeadingKeys"
    ]


def _mistakes_of(template: dict[str, Any], region: str) -> list[str]:
    return [
        f"{policy.holder}: {mistake}"
        for policy in Deployed(template=template, region=region).policies()
        if policy.kind != "trust"
        for statement in policy.document["Statement"]
        for mistake in mistakes(statement)
    ]


@pytest.mark.synth
@pytest.mark.parametrize("stage", ["local", "dev@eu-central-1", "prod", "prod@eu-west-1"])
def test_each_grant_of_a_stage_is_one_that_aws_knows(template: Callable[[str], dict[str, Any]], stage: str) -> None:
    assert _mistakes_of(template(stage), "us-east-1") == []


@pytest.mark.synth
@pytest.mark.slow
@pytest.mark.parametrize("row", EVERY_SWITCH, ids=map(str, EVERY_SWITCH))
def test_each_grant_of_a_stage_with_every_switch_is_one_that_aws_knows(
    full_template: Callable[..., dict[str, Any]], row: tuple[str, ...]
) -> None:
    assert _mistakes_of(full_template(*row), row[2]) == []


@pytest.mark.synth
@pytest.mark.slow
def test_template_for_china_names_no_other_partition(full_template: Callable[..., dict[str, Any]]) -> None:
    [row] = [row for row in EVERY_SWITCH if row[2].startswith("cn-")]
    assert "arn:aws:" not in json.dumps(full_template(*row))


@pytest.mark.synth
def test_each_grant_that_an_app_makes_is_one_that_aws_knows(tmp_path: Path) -> None:
    stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region="eu-west-1"))
    settings = STAGES["prod"]
    queue = Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, tmp_path), direct=True)
    orders = queue.topic("orders")
    role = iam.Role(stack, "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    orders.grant_produce(role)
    orders.grant_consume(role, group="billing")
    queue.share_group("workers", [orders]).grant_consume(role)
    queue.grant_admin(role)
    queue.grant_direct(role, "produce", "consume", "transact", "admin")
    assert _mistakes_of(dict(Template.from_stack(stack).to_json()), "eu-west-1") == []
