"""Mirrors that an app declares: the role at the other stage, the right to assume it, and the subscription."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Template
from cdk_nag import AwsSolutionsChecks

from bench.bill.synthesized import empty_shipment
from penstock_cdk import MirrorStage, Penstock, StageSettings
from tests.infra.conftest import Resources, resources_of
from tests.infra.templates import name_of, of_type
from tests.infra.test_cfn_lint import mistakes_in

pytestmark = pytest.mark.synth

ONE, OTHER = "111122223333", "444455556666"
ROLE = f"arn:aws:iam::{OTHER}:role/mirror"
TARGETS = f"arn:aws:iam::{ONE}:role/shop-targets-eu-west-1"
PLACE = MirrorStage(url="https://b.example", region="us-east-1", role_arn=ROLE, source="https://a.example")
Stages = Callable[..., Penstock]


@pytest.fixture
def stage(tmp_path: Path) -> Stages:
    """Makes a stage in a stack of its own, of one app."""
    app = App(outdir=str(tmp_path / "out"), builtin_cloud_formation_validation=False)

    def made(name: str, account: str | None = ONE, region: str | None = "eu-west-1", **more: Any) -> Penstock:
        settings = StageSettings(name=name, storage_profile="standard1")
        stack = Stack(app, name.title(), env=Environment(account=account, region=region), **more)
        return Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, tmp_path))

    return made


def resources_in(queue: Penstock) -> Resources:
    return resources_of(dict(Template.from_stack(Stack.of(queue)).to_json()))


def subscription_in(queue: Penstock) -> tuple[dict[str, Any], list[str]]:
    """The properties of the only subscription, and what is made before it."""
    [found] = [each for each in resources_in(queue).values() if each["Type"] == "Custom::PenstockSubscription"]
    return found["Properties"], [name[:-8] for name in found["DependsOn"]]


def assumed_by(queue: Penstock) -> Any:
    """What the role of deliveries may assume."""
    role = resources_in(queue)["TargetsRole"]["Properties"]
    return [
        (each["Action"], each["Resource"])
        for policy in role["Policies"]
        for each in policy["PolicyDocument"]["Statement"]
    ]


def mirror_role_in(queue: Penstock) -> dict[str, Any]:
    [role] = [
        each
        for each in of_type(resources_in(queue), "AWS::IAM::Role").values()
        if "-mirror-" in name_of(each.get("RoleName", ""))
    ]
    return role


def test_other_stage_trusts_the_source_alone_for_one_path_and_its_topics(stage: Stages) -> None:
    source, other = stage("shop"), stage("spare", OTHER, "us-east-1")
    source.mirror_to("dr", [source.topic("orders"), "payments"], other, url="https://b.example", prefix="eu.")
    role = mirror_role_in(other)
    [trusted] = role["AssumeRolePolicyDocument"]["Statement"]
    assert name_of(trusted["Principal"]["AWS"]) == f"arn:<AWS::Partition>:iam::{ONE}:root"
    wanted = f"arn:<AWS::Partition>:iam::{ONE}:role/shop-targets-eu-west-1"
    assert {kind: {key: name_of(arn) for key, arn in each.items()} for kind, each in trusted["Condition"].items()} == {
        "ArnEquals": {"aws:PrincipalArn": wanted},
        "StringEquals": {"sts:ExternalId": wanted},
    }
    [policy] = role["Policies"]
    [statement] = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == "execute-api:Invoke"
    assert name_of(statement["Resource"]).endswith("/POST/v1/mirrors/dr/append")
    rules = [
        (each["operation"], each["resource"])
        for acls in of_type(resources_in(other), "Custom::PenstockAcls").values()
        for each in json.loads(name_of(acls["Rules"]))
    ]
    topics = ("topic:eu.orders", "topic:eu.payments")
    assert sorted(rules) == [(each, topic) for each in ("alter", "write") for topic in topics]


def test_source_may_assume_that_role_alone_and_subscribes_after_it(stage: Stages) -> None:
    source, other = stage("shop"), stage("spare", OTHER, "us-east-1")
    source.mirror_to("dr", ["orders"], other, url="https://b.example")
    properties, after = subscription_in(source)
    target = json.loads(name_of(properties["Target"]))["stage"]
    name = mirror_role_in(other)["RoleName"]
    assert target["role"] == f"arn:<AWS::Partition>:iam::{OTHER}:role/{name}"
    assert (target["url"], target["region"]) == ("https://b.example", "us-east-1")
    assert "execute-api" in target["source"] or target["source"].startswith("<"), "clients of the mirror are told it"
    assert json.loads(properties["Config"]) == {"start": "earliest"}
    assert [(action, name_of(arn)) for action, arn in assumed_by(source)] == [("sts:AssumeRole", target["role"])]
    assert "TargetsRole" in after
    assert Stack.of(other) in Stack.of(source).dependencies
    assert len(name) <= 64


def test_url_of_a_stage_in_the_same_region_is_known_by_itself(stage: Stages) -> None:
    source, other = stage("shop"), stage("spare")
    source.mirror_to("move", ["orders"], other)
    assert "Fn::ImportValue" in json.dumps(subscription_in(source)[0]["Target"])


def test_url_of_a_stage_in_another_region_comes_by_a_reference_across_regions(stage: Stages) -> None:
    source = stage("shop", cross_region_references=True)
    other = stage("spare", region="us-east-1", cross_region_references=True)
    source.mirror_to("dr", ["orders"], other)
    assert "Custom::CrossRegionExportReader" in {each["Type"] for each in resources_in(source).values()}


def test_stage_of_another_app_is_named_and_its_app_makes_the_role(stage: Stages) -> None:
    source, other = stage("shop"), stage("spare", OTHER, "us-east-1")
    source.mirror_to("dr", ["orders"], PLACE)
    source.mirror_to("second", ["payments"], PLACE)
    role = other.mirror_role("dr", ["orders"], TARGETS)
    assert [name_of(arn) for _, arn in assumed_by(source)] == [ROLE], "a role once"
    [trusted] = mirror_role_in(other)["AssumeRolePolicyDocument"]["Statement"]
    assert trusted["Condition"]["StringEquals"] == {"sts:ExternalId": TARGETS}
    assert name_of(trusted["Principal"]["AWS"]) == f"arn:<AWS::Partition>:iam::{ONE}:root"
    assert role.role_name


def test_two_mirrors_have_two_roles(stage: Stages) -> None:
    other = stage("spare")
    names = {other.mirror_role(name, ["orders"], TARGETS).node.path for name in ("a", "b")}
    assert len(names) == 2
    found = of_type(resources_in(other), "AWS::IAM::Role").values()
    assert len({each["RoleName"] for each in found if "-mirror-" in name_of(each.get("RoleName", ""))}) == 2


def test_stage_without_mirrors_has_none_of_it(stage: Stages) -> None:
    queue = stage("shop")
    assert "Policies" not in resources_in(queue)["TargetsRole"]["Properties"]
    assert "-mirror-" not in json.dumps(resources_in(queue))


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda one, _: one.mirror_to("a b", ["orders"], PLACE), "a b"),
        (lambda one, _: one.mirror_to("dr", ["orders"], PLACE, prefix="eu."), "in the MirrorStage"),
        (lambda one, _: one.mirror_to("dr", ["orders"], PLACE, alarm_age_ms=60_000), "metrics"),
        (lambda one, _: one.mirror_role("dr", ["orders"], "shop"), "the ARN of the role"),
        (lambda one, nowhere: one.mirror_to("dr", ["orders"], nowhere), "Environment"),
        (lambda one, nowhere: nowhere.mirror_to("dr", ["orders"], one), "Environment"),
    ],
)
def test_mistake_is_told_at_synthesis(
    stage: Stages, declare: Callable[[Penstock, Penstock], object], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        declare(stage("shop"), stage("spare", None, None))


def test_templates_keep_the_rules_of_cloudformation_and_cdk_nag(stage: Stages) -> None:
    source, other = stage("shop"), stage("spare", OTHER, "us-east-1")
    source.mirror_to("dr", [source.topic("orders")], other, url="https://b.example")
    for queue, region in ((source, "eu-west-1"), (other, "us-east-1")):
        assert mistakes_in(dict(Template.from_stack(Stack.of(queue)).to_json()), region) == []
        report = AwsSolutionsChecks().validate_scope(Stack.of(queue))
        assert not [each.rule_name for each in report.violations if each.violating_resources]
