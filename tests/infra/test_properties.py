"""The properties of the construct, its names, and two constructs in one stack."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, NestedStack, RemovalPolicy, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Annotations, Match, Template
from constructs import Construct

from bench.bill.synthesized import empty_shipment
from penstock_cdk import Canary, Jwt, Penstock, StageSettings
from penstock_cdk.penstock import warn_of_region
from penstock_cdk.properties import Properties, default_name, settings_of_properties
from penstock_cdk.settings import STAGES

pytestmark = pytest.mark.synth


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Shop", env=Environment(region="eu-west-1"))


def settings_in(stack: Stack, properties: Properties, settings: StageSettings | None = None) -> StageSettings:
    return settings_of_properties(Construct(stack, "Queue"), settings, properties)


def test_every_property_changes_its_setting(stack: Stack) -> None:
    settings = settings_in(
        stack,
        {
            "name": "shop",
            "storage_profile": "standard1",
            "inline_bytes_max": 960,
            "log_retention": logs.RetentionDays.ONE_DAY,
            "audit_log_retention": logs.RetentionDays.ONE_WEEK,
            "topic_retention": Duration.minutes(1),
            "removal_policy": RemovalPolicy.DESTROY,
            "alarms": True,
            "alarm_topic": sns.Topic.from_topic_arn(stack, "Ops", "arn:aws:sns:eu-west-1:1:ops"),
            "canary": Canary(percent=20, minutes=5),
            "account_concurrency": 1_000,
            "emr_release": None,
            "tags": {"team": "shop"},
            "metrics": "all",
            "acl_default": "deny",
            "super_principals": ["arn:aws:iam::111122223333:role/admin"],
            "jwt": Jwt(issuer="https://login.example", audiences=["penstock"]),
            "direct": True,
            "kms_key": kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:eu-west-1:123456789012:key/1"),
        },
    )
    assert (settings.name, settings.profile, settings.region) == ("shop", "standard1", "eu-west-1")
    assert (settings.log_retention, settings.audit_log_retention) == ("ONE_DAY", "ONE_WEEK")
    assert settings.topic_retention_ms == 60_000
    assert settings.inline_bytes_max == 960
    assert not settings.keeps_data_on_delete
    assert settings.alarm_topic_arn == "arn:aws:sns:eu-west-1:1:ops"
    assert settings.canary == Canary(percent=20, minutes=5)
    assert settings.reserved_concurrency["produce"] == 225
    assert settings.emr_release is None
    assert settings.tags == {"team": "shop"}
    assert settings.metrics.of == "all"
    assert settings.acl_default == "deny"
    assert settings.jwt == Jwt(issuer="https://login.example", audiences=["penstock"])
    assert settings.direct
    assert settings.kms_key == "arn:aws:kms:eu-west-1:123456789012:key/1"
    assert settings.super_principals == ("arn:aws:iam::111122223333:role/admin",)
    assert set(Properties.__annotations__) == {
        *("name", "storage_profile", "log_retention", "audit_log_retention", "topic_retention"),
        *("removal_policy", "alarms", "inline_bytes_max"),
        *("alarm_topic", "canary", "account_concurrency", "emr_release", "tags"),
        *("metrics", "acl_default", "super_principals", "jwt", "direct", "kms_key"),
    }, "a new property is asserted above"


def test_properties_go_before_settings(stack: Stack) -> None:
    settings = settings_in(stack, {"alarms": False}, StageSettings(name="shop", log_retention="ONE_WEEK"))
    assert (settings.name, settings.log_retention, settings.has_alarms) == ("shop", "ONE_WEEK", False)


def test_data_stays_by_default(stack: Stack) -> None:
    assert settings_in(stack, {}).keeps_data_on_delete


@pytest.mark.parametrize("name", ["Shop", "shop_queue", "-shop", "shop-", "9", "", "s" * 41])
def test_names_that_resources_cannot_have_are_refused(stack: Stack, name: str) -> None:
    with pytest.raises(ValueError, match="lower-case") as refused:
        settings_in(stack, {"name": name})
    assert repr(name) in str(refused.value)


def test_unknown_property_is_refused(stack: Stack) -> None:
    with pytest.raises(TypeError, match="'retention'"):
        settings_in(stack, {"retention": 1})  # type: ignore[typeddict-unknown-key]  # what the test is about


def test_stack_without_a_region_needs_a_profile() -> None:
    stack = Stack(App(), "Shop")
    with pytest.raises(ValueError, match="give the stack a region"):
        settings_of_properties(Construct(stack, "Queue"), None, {})
    assert settings_of_properties(Construct(stack, "Other"), None, {"storage_profile": "standard1"}).region is None


@pytest.mark.parametrize(("region", "warnings"), [("eu-west-9", 1), ("eu-west-1", 0), (None, 0)])
def test_region_that_the_cdk_does_not_know_is_told(stack: Stack, region: str | None, warnings: int) -> None:
    warn_of_region(stack, region)
    assert len(Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("'eu-west-9'"))) == warnings


def test_profile_that_the_region_cannot_have_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match="express3"):
        settings_in(stack, {"storage_profile": "express3"})


@pytest.mark.parametrize(
    ("stack_name", "ids", "readable"),
    [
        ("Shop", ("Queue",), "shop-queue"),
        ("Shop", ("Default",), "shop"),
        ("Shop", ("Inner", "Queue"), "shop-inner-queue"),
        ("A" * 60, ("Queue",), "a" * 32),
    ],
)
def test_default_name_tells_stack_and_construct(stack_name: str, ids: tuple[str, ...], readable: str) -> None:
    scope: Construct = Stack(App(), "Any", stack_name=stack_name)
    for each in ids:
        scope = Construct(scope, each)
    assert re.fullmatch(rf"{readable}-[0-9a-f]{{6}}", default_name(scope))


def test_default_names_differ_where_readable_parts_do_not() -> None:
    app = App()
    shop, nested = Stack(app, "One", stack_name="Shop-A"), Stack(app, "Two", stack_name="Shop")
    places = (Construct(shop, "B"), Construct(nested, "A-B"), Construct(NestedStack(nested, "A"), "B"))
    names = [default_name(place) for place in places]
    assert len(set(names)) == 3
    assert all(name.startswith("shop-a-b-") for name in names)


# Names that AWS keeps once for an account and region, by type: two resources may not share one.
PHYSICAL = {
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::Events::Rule": "Name",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Role": "RoleName",
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::Glue::Job": "Name",
    "AWS::Scheduler::Schedule": "Name",
    "AWS::CodeDeploy::Application": "ApplicationName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SQS::Queue": "QueueName",
}


@pytest.mark.parametrize("chosen", [(None, None), pytest.param(("shop-1", "shop1"), marks=pytest.mark.minutes)])
def test_two_constructs_of_one_account_share_no_name(tmp_path: Path, chosen: tuple[str | None, str | None]) -> None:
    """IAM takes names for the same that differ in their case only."""
    names: list[tuple[str, str]] = []
    for each, name in zip(("Queue", "Other"), chosen, strict=True):
        app = App(builtin_cloud_formation_validation=False)
        stack = Stack(app, f"Shop{each}", stack_name=f"Shop-{each}", env=Environment(region="eu-west-1"))
        shipment = empty_shipment(StageSettings(name="any"), tmp_path)
        named: dict[str, Any] = {} if name is None else {"name": name}
        Penstock(stack, each, shipment=shipment, canary=Canary(percent=10, minutes=10), **named)
        template: Mapping[str, Any] = Template.from_stack(stack).to_json()
        assert f"{each}ApiUrl" in template["Outputs"]
        names += [
            (kind, str(resource["Properties"][attribute]).lower())
            for kind, attribute in PHYSICAL.items()
            for resource in template["Resources"].values()
            if resource["Type"] == kind and attribute in resource["Properties"]
        ]
    assert len(names) > 100
    assert len(names) == len(set(names))


@pytest.mark.parametrize("setting", ["job_environments", "route_rates"])
def test_names_of_no_function_or_handler_are_refused(setting: str) -> None:
    given: dict[str, Any] = {setting: {"look_at": {}}}
    with pytest.raises(ValueError, match=f"{setting} has 'look_at': name some of"):
        replace(STAGES["prod"], **given)
