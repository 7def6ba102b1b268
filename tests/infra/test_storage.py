"""Tables and buckets: keys, encryption, recovery, access, and the fate of their data on delete."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template

from penstock.restore.note import NOTE_KEY
from penstock_cdk.overrides import overridden
from penstock_cdk.settings import STAGES, StageSettings
from penstock_cdk.storage.tables import Tables
from penstock_core.ids import SegmentId
from penstock_core.storage import keys
from tests.infra.conftest import Resources, resources_of, settings_named
from tests.infra.powers import permissions_of_roles
from tests.infra.templates import functions_in, name_of, of_type

pytestmark = pytest.mark.synth


def test_tables_are_encrypted_recoverable_and_paid_per_request(resources: Resources) -> None:
    tables = of_type(resources, "AWS::DynamoDB::Table")
    assert set(tables) == {"TablesTopics", "TablesLog", "TablesGroups"}
    for table in tables.values():
        assert table.get("SSESpecification", {"SSEEnabled": False}) == {"SSEEnabled": False}  # a key that AWS owns
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert table["BillingMode"] == "PAY_PER_REQUEST"
        assert table["KeySchema"] == [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ]
        assert {attribute["AttributeType"] for attribute in table["AttributeDefinitions"]} == {"S"}


def test_only_the_log_streams_and_items_of_log_and_groups_may_expire(resources: Resources) -> None:
    tables = of_type(resources, "AWS::DynamoDB::Table")
    streams = {name: table.get("StreamSpecification") for name, table in tables.items()}
    both = {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert streams == {"TablesTopics": None, "TablesLog": both, "TablesGroups": None}
    expiry = {name: table.get("TimeToLiveSpecification") for name, table in tables.items()}
    assert expiry == {
        "TablesTopics": None,
        "TablesLog": {"AttributeName": "expires_at_s", "Enabled": True},
        "TablesGroups": {"AttributeName": "expires_at_s", "Enabled": True},
    }


def test_data_is_kept_on_delete_where_the_settings_say_so(resources: Resources, stage: str) -> None:
    kept = STAGES[stage].keeps_data_on_delete
    stored = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::S3Express::DirectoryBucket")
    found = [resource for resource in resources.values() if resource["Type"] in stored]
    assert len(found) == 5 + len(STAGES[stage].zones)
    for resource in found:
        assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == ("Retain" if kept else "Delete")
    for table in of_type(resources, "AWS::DynamoDB::Table").values():
        assert table["DeletionProtectionEnabled"] is kept


def test_prod_keeps_its_data() -> None:
    assert STAGES["prod"].keeps_data_on_delete


@pytest.mark.parametrize(
    ("stage", "express", "ordinary"),
    [
        ("local", {}, "ABC"),
        ("dev", {}, "A"),
        ("prod", {"A": "use1-az4", "B": "use1-az5", "C": "use1-az6"}, ""),
        ("prod@ap-northeast-1", {"A": "apne1-az1", "B": "apne1-az4"}, "C"),
        ("prod@eu-central-1", {}, "A"),
    ],
)
def test_zones_have_the_buckets_of_the_profile_that_the_stage_or_its_region_has(
    template: Callable[[str], dict[str, Any]], stage: str, express: dict[str, str], ordinary: str
) -> None:
    resources = resources_of(template(stage))
    directory = of_type(resources, "AWS::S3Express::DirectoryBucket")
    assert {name: bucket["LocationName"] for name, bucket in directory.items()} == {
        f"ZonesZone{letter}": az_id for letter, az_id in express.items()
    }
    buckets = {f"ZonesZone{letter}" for letter in ordinary}
    assert set(of_type(resources, "AWS::S3::Bucket")) == {"ArchiveBucket", "JobsResultsBucket", *buckets}


def test_stage_with_one_zone_has_nothing_that_repairs_zones(template: Callable[[str], dict[str, Any]]) -> None:
    resources = resources_of(template("prod@eu-central-1"))
    names = " ".join(resources)
    assert not [word for word in ("RecoverZones", "Replicate", "Scrub", "RepairQueue", "ZoneAlarms") if word in names]
    assert set(of_type(resources, "AWS::Lambda::EventSourceMapping")) == {
        "TimerSourceSeconds",
        "PushSourceStream",
        "PushSourceDeliveries",
    }
    puts = [each for each in permissions_of_roles(resources) if each.action == "dynamodb:PutItem"]
    writers = [each for each in puts if "ForAllValues:StringLike" in each.condition]  # of some items' keys
    written = {key for each in writers for key in each.condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]}
    assert written, "some roles write single items"
    assert keys.ZONES not in written


def test_ordinary_bucket_is_encrypted_private_and_forgets_unfinished_uploads(resources: Resources) -> None:
    for bucket in of_type(resources, "AWS::S3::Bucket").values():
        [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
        assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        [lifecycle] = bucket["LifecycleConfiguration"]["Rules"]
        assert lifecycle["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


@pytest.mark.parametrize("stage", ["prod"])
def test_directory_bucket_is_encrypted_and_forgets_unfinished_uploads(resources: Resources) -> None:
    for bucket in of_type(resources, "AWS::S3Express::DirectoryBucket").values():
        assert bucket["DataRedundancy"] == "SingleAvailabilityZone"
        [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
        [lifecycle] = bucket["LifecycleConfiguration"]["Rules"]
        assert lifecycle["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


@pytest.mark.parametrize("stage", ["prod"])
def test_s3_may_carry_out_the_lifecycle_of_directory_buckets(resources: Resources) -> None:
    policies = of_type(resources, "AWS::S3Express::BucketPolicy")
    assert set(policies) == {"ZonesZoneAPolicy", "ZonesZoneBPolicy", "ZonesZoneCPolicy"}
    for name, policy in policies.items():
        [allowed] = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
        assert name_of(allowed["Resource"]) == f"<{name.removesuffix('Policy')}>"
        assert (allowed["Principal"], allowed["Action"], allowed["Condition"]) == (
            {"Service": "lifecycle.s3.amazonaws.com"},
            "s3express:CreateSession",
            {"StringEquals": {"s3express:SessionMode": "ReadWrite"}},
        )


def test_no_role_but_the_one_that_empties_may_change_the_note_of_a_restore(resources: Resources) -> None:
    changes = [each for each in permissions_of_roles(resources) if re.match(r"s3:(Put|Delete|Abort)", each.action)]
    of_note = {each.holder for each in changes if fnmatchcase(f"<ArchiveBucket>/{NOTE_KEY}", each.resource)}
    assert of_note <= {"EmptyingRole"}
    segment = keys.segment_key(SegmentId(bytes(16)))
    of_segments = {each.holder for each in changes if fnmatchcase(f"<ArchiveBucket>/{segment}", each.resource)}
    assert of_segments >= {"Produce", "CompactJob", "Sweep", "SweepJob"}


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_plain_http_is_denied_on_every_bucket(resources: Resources, stage: str) -> None:
    policies = of_type(resources, "AWS::S3::BucketPolicy") | of_type(resources, "AWS::S3Express::BucketPolicy")
    assert len(policies) == 2 + len(STAGES[stage].zones)
    for policy in policies.values():
        assert any(
            statement["Effect"] == "Deny"
            and statement["Principal"] in ({"AWS": "*"}, "*")
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            for statement in policy["PolicyDocument"]["Statement"]
        )


def test_buckets_of_a_stage_that_keeps_no_data_are_emptied_when_it_goes_after_all_who_write(
    template: Callable[[str], dict[str, Any]], stage: str
) -> None:
    resources = template(stage)["Resources"]
    found = {name: each for name, each in resources.items() if each["Type"] == "Custom::EmptyBucket"}
    buckets = {name for name, each in resources.items() if each["Type"] == "AWS::S3::Bucket"}
    emptied = {each["Properties"]["Bucket"]["Ref"] for each in found.values()}
    assert emptied == (buckets if stage == "dev" else set())
    assert {each["Properties"]["ServiceTimeout"] for each in found.values()} <= {"900"}
    for each in resources.values():
        if each["Type"] == "AWS::Lambda::Function" and each["Properties"]["Handler"].startswith("penstock_handlers."):
            assert set(found) <= set(each.get("DependsOn", []))


def test_database_of_the_archive_goes_with_a_stage_that_keeps_no_data(resources: Resources, stage: str) -> None:
    dropped = [each["Database"] for each in of_type(resources, "Custom::DropDatabase").values()]
    assert dropped == (["penstock_dev"] if stage == "dev" else [])
    may = {
        (each.holder, each.resource.rpartition(":")[2])
        for each in permissions_of_roles(resources)
        if each.action == "glue:DeleteDatabase"
    }
    names = ("catalog", "database/penstock_dev", "table/penstock_dev/*", "userDefinedFunction/penstock_dev/*")
    assert may == ({("EmptyingRole", name) for name in names} if stage == "dev" else set())


@pytest.mark.parametrize("units", [None, 20_000])
def test_log_table_alone_is_warm_where_the_stage_says_how_warm(units: int | None) -> None:
    stack = Stack()
    Tables(stack, "Tables", settings=replace(STAGES["prod"], warm_log_writes=units))
    tables = of_type(resources_of(dict(Template.from_stack(stack).to_json())), "AWS::DynamoDB::Table")
    expected = {} if units is None else {"TablesLog": {"WriteUnitsPerSecond": units}}
    assert {name: each["WarmThroughput"] for name, each in tables.items() if "WarmThroughput" in each} == expected


RESTORED = "topics=t-restored,log=l-restored,groups=g-restored,log_stream=2026-11-22T21:00:00.000"


def test_stack_uses_restored_tables_and_has_none_of_its_own(
    make_stack_of: Callable[[StageSettings], Stack],
) -> None:
    settings = overridden(settings_named("prod"), {"restored_tables": RESTORED}.get)
    resources = Template.from_stack(make_stack_of(settings)).to_json()["Resources"]
    assert not of_type(resources, "AWS::DynamoDB::Table")
    for function in functions_in(resources).values():
        variables = function["Environment"]["Variables"]
        names = [variables[f"PENSTOCK_{each}_TABLE"] for each in ("TOPICS", "LOG", "GROUPS")]
        assert names == ["t-restored", "l-restored", "g-restored"]
    mappings = of_type(resources, "AWS::Lambda::EventSourceMapping").values()
    sources = [name_of(each["EventSourceArn"]) for each in mappings]
    assert [each for each in sources if each.endswith(":table/l-restored/stream/2026-11-22T21:00:00.000")]
    assert not re.search("TablesTopics|TablesLog|TablesGroups", json.dumps(resources))
