"""Stacks with other storage profiles than `local`: they are deployed, they produce and fetch, and they lose a zone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin
from penstock_core.limits import INLINE_BYTES_MAX
from penstock_service.adapters.aws import parse_zones
from tests.end_to_end.jobs.test_zones import append, empty, run_recover_zones, state_of, until_in_sync
from tests.end_to_end.local_stack import Stack, free_port, run, up
from tests.end_to_end.raw_requests import read_all
from tests.support.tasks import start

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

NUMBERED = [b"%d" % number * INLINE_BYTES_MAX for number in range(4)]  # too large for items
WHOLE = b"w" * INLINE_BYTES_MAX


@pytest.fixture
def stack_of(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A stack of its own with the profile that the test names."""
    try:
        yield up(tmp_path, "--port", str(free_port()), "--profile", request.param)
    finally:
        done = run("down", tmp_path)
        assert done.returncode == 0, done.stderr


def outputs_of(stack: Stack) -> dict[str, str]:
    [found] = stack.root_client("cloudformation").describe_stacks(StackName="Penstock")["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}


def objects_in(stack: Stack, bucket: str) -> list[str]:
    pages: Any = stack.root_client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [item["Key"] for page in pages for item in page.get("Contents", ())]


@pytest.mark.parametrize("stack_of", ["standard1"], indirect=True)
def test_stack_with_one_bucket_serves_records_and_deploys_nothing_that_repairs(stack_of: Stack, tmp_path: Path) -> None:
    transport = stack_of.transport()
    with Admin(transport=stack_of.transport()) as admin:
        admin.create_topic("orders")
        for value, acks in zip(NUMBERED, ("one", "quorum", "all"), strict=False):
            assert append(transport, "orders", value, acks)[0] == 200
        assert [each.zone for each in admin.list_zones()] == ["a"]
    assert [value for _, value in read_all(transport, "orders")] == NUMBERED[:3]

    outputs = outputs_of(stack_of)
    [zone] = parse_zones(outputs["ZoneBuckets"])
    assert len(objects_in(stack_of, zone.bucket)) == 3, "one put for each append"
    assert "RepairQueueUrl" not in outputs
    functions = {each["FunctionName"] for each in stack_of.root_client("lambda").list_functions()["Functions"]}
    assert "penstock-replicate" not in functions
    assert "penstock-produce" in functions
    cleaned = json.loads(start(stack_of.root_client("lambda"), "clean")["Payload"].read())
    assert (cleaned["partitions_served"], cleaned["cleaning_failed"]) == (0, 0), "no topic is compacted"

    moved = run("up", tmp_path, "--profile", "express2")
    assert moved.returncode == 1
    assert "has the storage profile standard1" in moved.stderr


@pytest.mark.parametrize("stack_of", ["express2"], indirect=True)
def test_stack_with_two_zones_goes_on_with_the_fallback_when_one_is_lost(stack_of: Stack) -> None:
    transport = stack_of.transport()
    a, b, c = parse_zones(outputs_of(stack_of)["ZoneBuckets"])
    assert [a.is_fallback, b.is_fallback, c.is_fallback] == [False, False, True]
    with Admin(transport=stack_of.transport()) as admin:
        admin.create_topic("orders")
        assert append(transport, "orders", WHOLE, "all")[0] == 200
        assert [len(objects_in(stack_of, each.bucket)) for each in (a, b, c)] == [1, 1, 0]

        s3 = stack_of.root_client("s3")
        empty(stack_of, b.bucket)
        s3.delete_bucket(Bucket=b.bucket)
        for value in NUMBERED:
            assert append(transport, "orders", value, "quorum")[0] == 200
        assert state_of(admin, "b") == "out_of_sync"
        assert len(objects_in(stack_of, c.bucket)) == 4
        assert [value for _, value in read_all(transport, "orders")] == [WHOLE, *NUMBERED]

        s3.create_bucket(Bucket=b.bucket)
        run_recover_zones(stack_of)
        until_in_sync(stack_of, admin, "b")
    assert set(objects_in(stack_of, a.bucket)) <= set(objects_in(stack_of, b.bucket)), "b caught up"
    tiered = json.loads(start(stack_of.root_client("lambda"), "tier")["Payload"].read())
    assert (tiered["partitions_tiered"], tiered["tiering_failed"], tiered["tiering_unfinished"]) == (1, 0, 0)
    assert append(transport, "orders", WHOLE, "quorum")[0] == 200
    assert len(objects_in(stack_of, c.bucket)) == 4, "the fallback is not written any more"


@pytest.mark.parametrize("stack_of", ["express3"], indirect=True)
def test_stack_with_three_zones_writes_each_record_to_all(stack_of: Stack) -> None:
    transport = stack_of.transport()
    zones = parse_zones(outputs_of(stack_of)["ZoneBuckets"])
    with Admin(transport=stack_of.transport()) as admin:
        admin.create_topic("orders")
        assert append(transport, "orders", WHOLE, "all")[0] == 200
    assert [len(objects_in(stack_of, each.bucket)) for each in zones] == [1, 1, 1]
    assert not any(each.is_fallback for each in zones)
    assert [value for _, value in read_all(transport, "orders")] == [WHOLE]
