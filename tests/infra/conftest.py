"""Each stage, synthesized once per session, without CloudFormation's built-in validation and with an empty asset."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template

from bench.bill.synthesized import stack_of
from penstock_cdk import Jwt
from penstock_cdk.jobs.job_schedules import RATES
from penstock_cdk.settings import NAME_LENGTH_MAX, Metrics, StageSettings, settings_of_context
from penstock_cdk.storage_profile import Profile
from penstock_cdk.walls import reserved_concurrency

Resources = dict[str, dict[str, Any]]


def settings_named(stage: str) -> StageSettings:
    """The settings of `stage`, or of `stage@region`, whose profile is that of the region."""
    name, _, region = stage.partition("@")
    return settings_of_context({"stage": name, "region": region or None}, None)


@pytest.fixture(scope="session")
def make_stack_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[StageSettings], Stack]:
    """The stack of any settings, in an app of its own."""
    return lambda settings: stack_of(settings, tmp_path_factory.mktemp(settings.name))


@pytest.fixture(scope="session")
def make_stack(make_stack_of: Callable[[StageSettings], Stack]) -> Callable[[str], Stack]:
    """The stack of a stage, made once."""
    return cache(lambda stage: make_stack_of(settings_named(stage)))


# A base stage, a profile, and a region whose name is as long as that of any region which can have the profile.
EVERY_SWITCH = (
    ("prod", "express3", "us-east-1"),
    ("prod", "express2", "ap-northeast-1"),
    ("prod", "standard1", "cn-northwest-1"),
    ("dev", "standard1", "ap-southeast-1"),
)


def with_every_switch(stage: str, profile: Profile, region: str) -> StageSettings:
    """The settings of a stage with all that can be turned on, and the longest name that it can have."""
    partition = "aws-cn" if region.startswith("cn-") else "aws"
    return replace(
        settings_named(stage),
        region=region,
        storage_profile=profile,
        name="s" * NAME_LENGTH_MAX,
        account_concurrency=1_000,
        reserved_concurrency=reserved_concurrency(1_000),
        inline_bytes_max=960,
        scheduled_jobs=frozenset(RATES),
        metrics=Metrics(of="all", has_dashboard=True),
        alarm_topic_arn=f"arn:{partition}:sns:{region}:123456789012:alarms",
        traces=True,
        timers_always_on=True,
        jwt=Jwt(issuer="https://login.example", audiences=["penstock"], claim="email"),
        direct=True,
        acl_default="deny",
        super_principals=(f"arn:{partition}:iam::123456789012:role/operators",),
        registry_secret="s" * 200,
        reads_glue_schemas=True,
        kms_key=f"arn:{partition}:kms:{region}:123456789012:key/mrk-{'1' * 32}",
    )


@pytest.fixture(scope="session")
def full_template(make_stack_of: Callable[[StageSettings], Stack]) -> Callable[..., dict[str, Any]]:
    """The template of `with_every_switch`, made once for each row of `EVERY_SWITCH`."""
    return cache(lambda *row: dict(Template.from_stack(make_stack_of(with_every_switch(*row))).to_json()))


@pytest.fixture(scope="session")
def template(make_stack: Callable[[str], Stack]) -> Callable[[str], dict[str, Any]]:
    """A stage's CloudFormation template."""
    return cache(lambda stage: dict(Template.from_stack(make_stack(stage)).to_json()))


@pytest.fixture(params=["local", "dev", "prod"])
def stage(request: pytest.FixtureRequest) -> str:
    """Every stage in turn."""
    return str(request.param)


@pytest.fixture(params=["local", "prod"])
def zoned_stage(request: pytest.FixtureRequest) -> str:
    """Every stage with several zones."""
    return str(request.param)


@pytest.fixture
def zoned_resources(template: Callable[[str], dict[str, Any]], zoned_stage: str) -> Resources:
    """As `resources`, of a stage with several zones."""
    return resources_of(template(zoned_stage))


def resources_of(template: dict[str, Any]) -> Resources:
    """The resources of a template by their logical ids without CDK's hash."""
    return {logical_id[:-8]: resource for logical_id, resource in template["Resources"].items()}


def entry_of(stage: str, construct: str) -> str:
    """What callers of a function call, as `name_of` writes it: its alias, or itself where the stage has no versions."""
    return f"<Functions{construct}Function>" if settings_named(stage).canary is None else f"<Releases{construct}>"


def zones_in_environment(stage: str) -> str:
    """PENSTOCK_ZONES of a stage, with the names of the buckets in the template."""
    return ",".join(
        f"{zone.name}=<ZonesZone{zone.name.upper()}>" + (":fallback" if zone.is_fallback else "")
        for zone in settings_named(stage).zones
    )


@pytest.fixture
def resources(template: Callable[[str], dict[str, Any]], stage: str) -> Resources:
    """The resources of the stage by their logical ids without CDK's hash, which tells a reader nothing."""
    return resources_of(template(stage))
