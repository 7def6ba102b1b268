"""A stage that puts small appends into the log table, on the emulator, to the end of their lives.

Produced by HTTP and embedded, fetched, kept over a restart, moved to the archive, and swept by the deployed function.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk import Stack as CdkStack

from penstock import Admin
from penstock_cdk import Penstock
from penstock_cdk.settings import JOB_ENVIRONMENTS
from penstock_core.compaction.merging import CompactionSettings
from penstock_core.ids import Partition, PartitionKey
from penstock_core.log.ref import Tier
from penstock_core.stack_outputs import storage_variables
from penstock_core.storage.page_item import inline_shards
from penstock_service.adapters.aws import aws_instance, storage_of_environment
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.compaction.compact import compact
from penstock_service.instance.instance import Instance
from tests.end_to_end.local_stack import Stack, free_port, run, up
from tests.end_to_end.own_stack import NAME, SETTINGS, OwnStack, deploy_app
from tests.end_to_end.raw_requests import append, read_all, storage_calls
from tests.support.service import refs_of, send

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

BYTES_MAX = 960
SMALL, LARGE = b"small" * 20, b"large" * 400
AT_ONCE = CompactionSettings(age_ms_min=0, zonal_ms_max=0)
WITHOUT_GRACE = {"PENSTOCK_SWEEP_GRACE_MS": "0", "PENSTOCK_LOG_START_GRACE_MS": "0"}
INLINE = replace(
    SETTINGS,
    storage_profile="express3",
    inline_bytes_max=BYTES_MAX,
    job_environments={**JOB_ENVIRONMENTS, "sweep": {**JOB_ENVIRONMENTS["sweep"], **WITHOUT_GRACE}},
)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Stack]:
    """An emulator of its own, because the test restarts it."""
    try:
        yield up(tmp_path, "--port", str(free_port()))
    finally:
        done = run("down", tmp_path)
        assert done.returncode == 0, done.stderr


def deployed(local: Stack, folder: Path) -> OwnStack:
    def make(app: App) -> None:
        Penstock(CdkStack(app, NAME), "Queue", settings=INLINE)

    return deploy_app(local, folder, make)


def embedded(own: OwnStack) -> Instance:
    """The service in this process, on the storage that the stack's outputs name."""
    outputs = {name.removeprefix("Queue"): value for name, value in own.outputs.items()}
    storage = storage_of_environment(storage_variables(outputs))
    place = {"region": own.local.region, "endpoint_url": own.local.endpoint_url}
    return aws_instance(replace(storage, **place, access_key="test", secret_key="test"), StorageCalls())  # type: ignore[arg-type]


def items(own: OwnStack) -> int:
    """The inline segments that the log table holds."""
    dynamodb: Any = own.local.root_client("dynamodb")
    return sum(
        dynamodb.query(
            TableName=own.outputs["QueueLogTable"],
            KeyConditionExpression="pk = :shard",
            ExpressionAttributeValues={":shard": {"S": shard}},
            Select="COUNT",
        )["Count"]
        for shard in inline_shards()
    )


def objects(own: OwnStack) -> list[int]:
    """How many segments each zone's bucket holds."""
    s3: Any = own.local.root_client("s3")
    buckets = [each.partition("=")[2].partition(":")[0] for each in own.outputs["QueueZoneBuckets"].split(",")]
    return [s3.list_objects_v2(Bucket=bucket)["KeyCount"] for bucket in buckets]


def sweep(own: OwnStack) -> dict[str, Any]:
    answer = own.local.root_client("lambda").invoke(FunctionName=f"{INLINE.name}-sweep")
    result: dict[str, Any] = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, result
    return result


def tiers(instance: Instance, key: PartitionKey) -> list[Tier]:
    return [each.ref.tier for each in refs_of(instance, key)]


def test_small_appends_live_in_the_log_table_until_they_are_moved_and_swept(local: Stack, tmp_path: Path) -> None:
    own = deployed(local, tmp_path / "out")
    with own.admin() as admin:
        admin.create_topic("orders", config={"retention_ms": -1})
    answer, _ = append(own.transport, "orders", SMALL)
    calls = storage_calls(answer)
    assert (calls["dynamodb.PutItem"], calls["dynamodb.UpdateItem"]) == (1, 1)
    assert not any(name.startswith("s3.") for name in calls)
    for number in range(18):
        append(own.transport, "orders", b"%d" % number)
    append(own.transport, "orders", LARGE)
    instance = embedded(own)
    send(instance, "orders", "embedded")
    records = read_all(own.transport, "orders")
    assert [value for _, value in records] == [SMALL, *(b"%d" % number for number in range(18)), LARGE, b"embedded"]
    assert (items(own), objects(own)) == (20, [1, 1, 1])

    assert run("down", tmp_path).returncode == 0
    again = replace(own, local=up(tmp_path))
    assert read_all(again.transport, "orders") == records

    key = PartitionKey(instance.topic_cache.read_through("orders").topic_id, Partition(0))
    assert Tier.INLINE in tiers(instance, key)
    compact(instance, "orders", 0, AT_ONCE)
    assert set(tiers(instance, key)) == {Tier.ARCHIVE}
    assert read_all(again.transport, "orders") == records

    append(again.transport, "orders", b"stays")
    sweep(again)
    assert (items(again), objects(again)) == (1, [0, 0, 0])
    assert read_all(again.transport, "orders") == [*records, (len(records), b"stays")]

    with Admin(transport=again.transport) as admin:
        admin.delete_topic("orders")
    sweep(again)
    assert items(again) == 0
