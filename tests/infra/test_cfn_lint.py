"""cfn-lint holds the templates to CloudFormation's own schemas: types, properties, enums, and regions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Template
from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]  # cfn-lint has no types

from bench.bill.synthesized import empty_shipment
from penstock_cdk import Penstock, StageSettings

pytestmark = [pytest.mark.synth, pytest.mark.slow]
# W3005 tells of a DependsOn that a reference implies. The CDK writes them, and they do no harm.
PASSED_OVER = ("W3005",)


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("name", "region"),
    [("dev@eu-central-1", "eu-central-1"), ("prod", "us-east-1"), ("prod@eu-west-1", "eu-west-1")],
)
def test_template_is_one_that_cloudformation_takes(
    template: Callable[[str], dict[str, Any]], name: str, region: str
) -> None:
    assert mistakes_in(template(name), region) == []


def test_template_that_declares_topics_and_subscriptions_is_one_that_cloudformation_takes(tmp_path: Path) -> None:
    stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region="eu-west-1"))
    settings = StageSettings(name="shop")
    queue = Penstock(stack, "Queue", settings=settings, shipment=empty_shipment(settings, tmp_path))
    role = iam.Role(stack, "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    orders, dead = queue.topic("orders", partitions=3), queue.topic("orders.dead")
    orders.grant_produce(role)
    orders.grant_consume(role, group="billing")
    queue.share_group("workers", [orders], dead_letter_topic=dead).grant_consume(role)
    queue.grant_admin(role)
    handler = lambda_.Function(
        stack,
        "Handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("handler = print"),
    )
    orders.on_records(handler, filter={"type": ["order"]}, dead_letter_topic=dead)
    orders.on_records(sqs.Queue(stack, "Jobs"))
    assert mistakes_in(dict(Template.from_stack(stack).to_json()), "eu-west-1") == []


def mistakes_in(template: dict[str, Any], region: str) -> list[str]:
    """What cfn-lint finds in a template."""
    found = lint(json.dumps(template), config=ManualArgs(regions=[region], ignore_checks=list(PASSED_OVER)))
    return [f"{each.rule.id} {each.path}: {each.message}" for each in found]
