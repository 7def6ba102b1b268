"""Tables and buckets: keys, encryption, recovery, access, and the fate of their data on delete."""

import pytest

from infra.settings import STAGES
from tests.infra.conftest import Resources
from tests.infra.templates import of_type

pytestmark = pytest.mark.synth


def test_tables_are_encrypted_recoverable_and_paid_per_request(resources: Resources) -> None:
    tables = of_type(resources, "AWS::DynamoDB::Table")
    assert set(tables) == {"TablesTopics", "TablesLog", "TablesGroups"}
    for table in tables.values():
        assert table["SSESpecification"] == {"SSEEnabled": True}
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
    assert streams == {"TablesTopics": None, "TablesLog": {"StreamViewType": "NEW_IMAGE"}, "TablesGroups": None}
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
    assert len(found) == 8
    for resource in found:
        assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == ("Retain" if kept else "Delete")
    for table in of_type(resources, "AWS::DynamoDB::Table").values():
        assert table["DeletionProtectionEnabled"] is kept


def test_prod_keeps_its_data() -> None:
    assert STAGES["prod"].keeps_data_on_delete


def test_zones_are_directory_buckets_in_three_zones_where_the_settings_name_them(
    resources: Resources, stage: str
) -> None:
    az_ids = STAGES[stage].express_zone_ids
    express = of_type(resources, "AWS::S3Express::DirectoryBucket")
    assert {name: bucket["LocationName"] for name, bucket in express.items()} == (
        dict(zip(("ZonesZoneA", "ZonesZoneB", "ZonesZoneC"), az_ids, strict=True)) if az_ids else {}
    )
    zones = set() if az_ids else {"ZonesZoneA", "ZonesZoneB", "ZonesZoneC"}
    assert set(of_type(resources, "AWS::S3::Bucket")) == {"ArchiveBucket", "JobsResultsBucket", *zones}
    assert (stage == "prod") == bool(az_ids)


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


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_plain_http_is_denied_on_every_bucket(resources: Resources) -> None:
    policies = of_type(resources, "AWS::S3::BucketPolicy") | of_type(resources, "AWS::S3Express::BucketPolicy")
    assert len(policies) == 5
    for policy in policies.values():
        assert any(
            statement["Effect"] == "Deny"
            and statement["Principal"] in ({"AWS": "*"}, "*")
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            for statement in policy["PolicyDocument"]["Statement"]
        )
