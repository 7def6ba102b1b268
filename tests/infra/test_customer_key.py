"""A key of the customer: each resource takes it, each role gets what its calls need, and the services are let in."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match, Template
from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]  # cfn-lint has no types

from bench.bill.synthesized import empty_shipment
from penstock.cost.estimate import FUNCTIONS
from penstock_cdk import Penstock
from penstock_cdk.settings import STAGES, RestoredTables, StageSettings
from tests.infra.conftest import Resources, resources_of, settings_named
from tests.infra.powers import permissions_of_roles
from tests.infra.templates import functions_in
from tests.infra.test_cfn_lint import mistakes_in

pytestmark = pytest.mark.synth

REGION = "us-east-1"
# Each stage, and each storage profile.
STAGES_WITH_PLACES = ("local", "dev", "prod", "prod@ap-northeast-1", "prod@eu-central-1")
# Types whose schema has a property for a key, and which take none. Each has its reason.
TAKE_NONE = {
    "AWS::EMRServerless::Application": "it keeps no logs of its own, and CloudWatch's log group has the key",
    "AWS::Lambda::EventSourceMapping": "the key would hide a filter's pattern, which is the same in every stage",
    "AWS::Lambda::Function": "variables name resources and hold no data, and each cold start would call KMS",
    "AWS::Scheduler::Schedule": "the input names a job and its role",
}


def key_in(region: str | None) -> str:
    return f"arn:aws:kms:{region or REGION}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def with_key(stage: str) -> StageSettings:
    settings = settings_named(stage)
    return replace(settings, kms_key=key_in(settings.region))


@pytest.fixture(scope="module")
def encrypted(make_stack_of: Callable[[StageSettings], Stack]) -> Callable[[str], Resources]:
    """The resources of a stage with a key."""
    made: dict[str, Resources] = {}

    def resources(stage: str) -> Resources:
        if stage not in made:
            made[stage] = resources_of(dict(Template.from_stack(make_stack_of(with_key(stage))).to_json()))
        return made[stage]

    return resources


def takes_keys(resource_type: str) -> bool:
    """True if CloudFormation's schema of the type has a property that names a key."""
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, resource_type).schema
    return re.search(r'"[A-Za-z]*(kms|encryptionkey)[A-Za-z]*":', json.dumps(schema), re.IGNORECASE) is not None


@pytest.mark.parametrize("stage", STAGES_WITH_PLACES)
def test_each_resource_that_can_take_the_key_has_it(encrypted: Callable[[str], Resources], stage: str) -> None:
    resources = encrypted(stage)
    types = {each["Type"] for each in resources.values() if not each["Type"].startswith("Custom::")}
    able = {each for each in types if takes_keys(each)}
    stores = {"AWS::DynamoDB::Table", "AWS::Logs::LogGroup", "AWS::S3::Bucket", "AWS::SQS::Queue"}
    assert able - TAKE_NONE.keys() >= stores, "the schemas tell what can take a key"
    key = json.dumps(with_key(stage).kms_key)
    assert {
        name
        for name, each in resources.items()
        if each["Type"] in able - TAKE_NONE.keys() and key not in json.dumps(each["Properties"])
    } == set()


@pytest.mark.slow
@pytest.mark.minutes
def test_template_with_a_key_is_one_that_cloudformation_takes(make_stack_of: Callable[[StageSettings], Stack]) -> None:
    assert mistakes_in(dict(Template.from_stack(make_stack_of(with_key("prod"))).to_json()), REGION) == []


@pytest.mark.parametrize("stage", STAGES_WITH_PLACES)
def test_key_adds_no_resource(
    encrypted: Callable[[str], Resources], template: Callable[[str], dict[str, Any]], stage: str
) -> None:
    assert encrypted(stage).keys() == resources_of(template(stage)).keys()


@pytest.mark.parametrize("stage", ["prod", "dev"])
def test_each_kind_of_store_takes_the_key_in_its_own_way(encrypted: Callable[[str], Resources], stage: str) -> None:
    key = with_key(stage).kms_key
    rules = [
        {
            "BucketKeyEnabled": True,
            "ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key},
        }
    ]
    expected: dict[str, dict[str, Any]] = {
        "AWS::DynamoDB::Table": {"SSESpecification": {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key}},
        "AWS::Logs::LogGroup": {"KmsKeyId": key},
        "AWS::S3::Bucket": {"BucketEncryption": {"ServerSideEncryptionConfiguration": rules}},
        "AWS::S3Express::DirectoryBucket": {"BucketEncryption": {"ServerSideEncryptionConfiguration": rules}},
        # SQS refuses a queue that has both a key of yours and one of its own
        "AWS::SQS::Queue": {"KmsMasterKeyId": key, "SqsManagedSseEnabled": False},
    }
    for name, each in encrypted(stage).items():
        for path, value in expected.get(each["Type"], {}).items():
            assert each["Properties"][path] == value, name


def test_application_of_jobs_keeps_no_logs_that_the_key_does_not_encrypt(
    encrypted: Callable[[str], Resources],
) -> None:
    application = encrypted("prod")["JobsSparkApplication"]["Properties"]["MonitoringConfiguration"]
    assert application["ManagedPersistenceMonitoringConfiguration"] == {"Enabled": False}
    assert application["CloudWatchLoggingConfiguration"]["Enabled"] is True


# The services through which each role uses the key, by the action. S3's directory buckets have two names.
ZONES = ["s3", "s3express"]
ROLES = {
    "Groups": {"kms:Decrypt": ["dynamodb"]},
    "Dispatch": {"kms:Decrypt": ["dynamodb", "sqs"], "kms:GenerateDataKey": ["sqs"]},
    "Fetch": {"kms:Decrypt": ["dynamodb", *ZONES, "sqs"], "kms:GenerateDataKey": [*ZONES, "sqs"]},
    "Sweep": {"kms:Decrypt": ["dynamodb", *ZONES], "kms:GenerateDataKey": ZONES},
    "AnalyzeJob": {"kms:Decrypt": ["dynamodb", *ZONES], "kms:GenerateDataKey": ZONES},
}


def uses_of(resources: Resources, region: str) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for each in permissions_of_roles(resources):
        if each.action.startswith("kms:"):
            assert each.resource == key_in(region)
            services = each.condition["StringLike"]["kms:ViaService"]
            found.setdefault(each.holder, {})[each.action] = [
                service.removesuffix(f".{region}.amazonaws.com*") for service in services
            ]
    return found


def test_each_role_uses_the_key_through_the_services_that_it_calls(encrypted: Callable[[str], Resources]) -> None:
    found = uses_of(encrypted("prod"), REGION)
    assert {name: found[name] for name in ROLES} == ROLES


@pytest.mark.parametrize("stage", ["prod", "prod@eu-central-1"])
def test_each_role_that_reads_tables_or_objects_may_use_the_key(
    encrypted: Callable[[str], Resources], stage: str
) -> None:
    reading = ("dynamodb:GetItem", "dynamodb:Query", "s3:GetObject", "s3express:CreateSession", "sqs:ReceiveMessage")
    resources = encrypted(stage)
    readers = {each.holder for each in permissions_of_roles(resources) if each.action in reading}
    assert readers == uses_of(resources, settings_named(stage).region or REGION).keys()


def test_estimate_knows_how_many_functions_may_use_the_key(encrypted: Callable[[str], Resources]) -> None:
    assert len(functions_in(encrypted("prod"))) == FUNCTIONS


def test_stage_without_directory_buckets_names_s3_alone(encrypted: Callable[[str], Resources]) -> None:
    found = uses_of(encrypted("prod@eu-central-1"), "eu-central-1")
    assert found["Sweep"] == {"kms:Decrypt": ["dynamodb", "s3"], "kms:GenerateDataKey": ["s3"]}
    assert found["Admin"]["kms:GenerateDataKey"] == ["s3", "sqs"]


def app_with(key_of: Callable[[Stack], kms.IKey], folder: Path, stage: str = "prod") -> Stack:
    settings = replace(STAGES[stage], region=REGION, alarm_topic_arn=f"arn:aws:sns:{REGION}:123456789012:ops")
    stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region=REGION))
    Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, folder), kms_key=key_of(stack))
    return stack


def test_key_of_the_app_lets_in_the_services_that_use_it_in_their_own_name(tmp_path: Path) -> None:
    stack = app_with(lambda stack: kms.Key(stack, "Key"), tmp_path)
    found = dict(Template.from_stack(stack).to_json())["Resources"]  # it fails if resources name each other in a circle
    [key] = [each["Properties"] for each in found.values() if each["Type"] == "AWS::KMS::Key"]
    ours = {each["Sid"]: each for each in key["KeyPolicy"]["Statement"] if "Sid" in each}
    services = {name: each["Principal"]["Service"] for name, each in ours.items()}
    assert services == {
        "PenstockLogs": f"logs.{REGION}.amazonaws.com",
        "PenstockFailedRuns": "events.amazonaws.com",
        "PenstockAlarmTopic": "cloudwatch.amazonaws.com",
    }
    assert all("ArnLike" in each["Condition"] for each in ours.values())


def test_log_group_of_each_stage_is_in_the_policy_of_the_key(tmp_path: Path) -> None:
    for stage in ("prod", "dev"):
        stack = app_with(lambda stack: kms.Key(stack, "Key"), tmp_path, stage)
        found = dict(Template.from_stack(stack).to_json())["Resources"]
        [key] = [each["Properties"] for each in found.values() if each["Type"] == "AWS::KMS::Key"]
        [logs] = [each for each in key["KeyPolicy"]["Statement"] if each.get("Sid") == "PenstockLogs"]
        patterns = json.dumps(logs["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"])
        for name, each in found.items():
            if each["Type"] == "AWS::Logs::LogGroup":
                group = each["Properties"].get("LogGroupName", "Shop-")  # CloudFormation begins a name with the stack's
                text = group if isinstance(group, str) else group["Fn::Join"][1][0]
                known = [
                    pattern for pattern in re.findall(r"log-group:([^*\"]+)", patterns) if text.startswith(pattern)
                ]
                assert known, name


def test_app_says_what_the_policy_of_another_key_needs(tmp_path: Path) -> None:
    stack = app_with(lambda stack: kms.Key.from_key_arn(stack, "Key", key_in(REGION)), tmp_path)
    [told] = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp(f"policy of {key_in(REGION)}"))
    statements = json.loads(re.search(r"\[\{.*\}\]", str(told.entry.data))[0])  # type: ignore[index]  # it is there
    assert [each["Sid"] for each in statements] == ["PenstockLogs", "PenstockFailedRuns", "PenstockAlarmTopic"]
    assert "Fn::" not in str(statements), "they are put into the policy as they are"
    assert f"arn:aws:logs:{REGION}:123456789012:log-group:/aws/lambda/penstock-*" in str(statements)


def test_app_says_it_of_a_key_in_the_settings_too(make_stack_of: Callable[[StageSettings], Stack]) -> None:
    stack = make_stack_of(with_key("prod"))
    Annotations.from_stack(stack).has_info("*", Match.string_like_regexp("kms:EncryptionContext:aws:logs:arn"))


def test_app_says_that_restored_tables_do_not_take_the_key(make_stack_of: Callable[[StageSettings], Stack]) -> None:
    restored = RestoredTables(topics="t", log="l", groups="g", log_stream="2026-11-29T01:00:00.000")
    stack = make_stack_of(replace(with_key("prod"), restored_tables=restored))
    command = f"--table-name l --sse-specification Enabled=true,SSEType=KMS,KMSMasterKeyId={key_in(REGION)}"
    Annotations.from_stack(stack).has_warning("*", Match.string_like_regexp(command))
