"""A zone's bucket is lost and comes back, on the deployed stack: how long appends wait, and what is copied."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Admin
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from tests.end_to_end.local_stack import NOW_MS, Stack
from tests.end_to_end.raw_requests import read_all
from tests.support.deadlines import until
from tests.support.tasks import start

pytestmark = pytest.mark.stack
DEADLINE_S = 240


def append(stack_transport: Any, topic: str, value: bytes, acks: str) -> tuple[int, Any]:
    batch = encode([NewRecord(NOW_MS, None, value)])
    header = {"acks": acks, "batches": [{"topic": topic, "partition": 0, "length": len(batch)}]}
    answer = stack_transport.call("POST", "/v1/produce", {}, {}, frame.encode(header, [batch]))
    return answer.status, json.loads(answer.body)


def state_of(admin: Admin, zone: str) -> str:
    return next(each.state for each in admin.list_zones() if each.zone == zone)


def run_recover_zones(stack: Stack) -> dict[str, Any]:
    answer = start(stack.root_client("lambda"), "recover_zones")
    result: dict[str, Any] = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, result
    return result


@pytest.mark.minutes
def test_lost_zone_is_left_behind_and_catches_up_when_it_is_back(stack: Stack, admin: Admin) -> None:
    transport = stack.transport()
    s3 = stack.root_client("s3")
    admin.create_topic("lost-zone", config={"max_batch_bytes": 1_000_000})
    bucket = bucket_of(stack, "c")
    for number in range(20):
        assert append(transport, "lost-zone", b"%d" % number, "all")[0] == 200

    empty(stack, bucket)
    s3.delete_bucket(Bucket=bucket)
    lost_at = time.monotonic()
    tries = 1
    while append(transport, "lost-zone", b"after", "all")[0] != 200:
        tries += 1
        assert time.monotonic() - lost_at < DEADLINE_S
    through_after_s = time.monotonic() - lost_at
    assert state_of(admin, "c") == "out_of_sync"
    assert tries <= 10
    for number in range(40):
        assert append(transport, "lost-zone", b"x" * 500_000, "all")[0] == 200, number
    assert run_recover_zones(stack)["readmitted"] == []

    s3.create_bucket(Bucket=bucket)
    back_at = time.monotonic()
    first = run_recover_zones(stack)
    copying = first if first["segments"] else run_recover_zones(stack)
    until_in_sync(stack, admin, "c", lambda: append(transport, "lost-zone", b"meanwhile", "all"))
    in_sync_after_s = time.monotonic() - back_at
    print(
        f"acks=all came through {through_after_s:.2f} s after the loss, at try {tries}; in sync "
        f"{in_sync_after_s:.1f} s after the return; copied {copying['segments']} segments at {copying['mb_per_s']} MB/s"
    )

    # The bucket is new, and also holds the segments of the old one: c alone serves every record.
    with only_zone(stack, "c"):
        records = read_all(transport, "lost-zone")
    assert [value for _, value in records[:21]] == [*(b"%d" % number for number in range(20)), b"after"]
    assert sum(value is not None and len(value) == 500_000 for _, value in records) == 40


@pytest.mark.minutes
def test_zone_in_sync_that_was_emptied_is_looked_over_when_the_operator_asks(stack: Stack, admin: Admin) -> None:
    """No append ran meanwhile, so no function has noticed the loss."""
    transport = stack.transport()
    admin.create_topic("emptied-zone")
    for number in range(40):
        assert append(transport, "emptied-zone", b"%d" % number, "all")[0] == 200
    assert state_of(admin, "b") == "in_sync"
    empty(stack, bucket_of(stack, "b"))
    assert admin.let_zone_in("b", "somebody has emptied its bucket").state == "catching_up"
    with only_zone(stack, "b"):
        stuck = run_recover_zones(stack)
    assert (stuck["in_sync"], stuck["lost"], stuck["zones_behind"]) == ([], 0, 1)
    assert stuck["failures"] >= 40
    until_in_sync(stack, admin, "b")
    with only_zone(stack, "b"):
        assert [value for _, value in read_all(transport, "emptied-zone")] == [b"%d" % number for number in range(40)]


def until_in_sync(stack: Stack, admin: Admin, zone: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Runs recover_zones and `meanwhile` in turn until the zone is in sync."""
    until(
        lambda: state_of(admin, zone) == "in_sync",
        step=lambda: (run_recover_zones(stack), meanwhile()),
        deadline_s=DEADLINE_S,
    )


def bucket_of(stack: Stack, zone: str) -> str:
    buckets = stack.root_client("s3").list_buckets()["Buckets"]
    return str(next(each["Name"] for each in buckets if f"zone{zone}" in each["Name"].lower()))


def empty(stack: Stack, bucket: str) -> None:
    s3 = stack.root_client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", ()):
            s3.delete_object(Bucket=bucket, Key=item["Key"])


@contextmanager
def only_zone(stack: Stack, zone: str) -> Iterator[None]:
    """Lets the buckets of the other zones deny every get of the functions, during the block."""
    s3 = stack.root_client("s3")
    others = [bucket_of(stack, other) for other in "abc" if other != zone]
    for bucket in others:
        denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
    try:
        yield
    finally:
        for bucket in others:
            s3.delete_bucket_policy(Bucket=bucket)


@pytest.mark.minutes
def test_operator_takes_a_zone_out(stack: Stack, admin: Admin) -> None:
    assert admin.take_zone_out("b", "test").state == "taken_out"
    try:
        transport = stack.transport()
        admin.create_topic("zone-b-out")
        assert append(transport, "zone-b-out", b"x", "all")[0] == 200
        admin.create_topic("zone-b-strict", config={"min_insync_zones": 3})
        deadline = time.monotonic() + DEADLINE_S
        while (answer := append(transport, "zone-b-strict", b"x", "all"))[0] == 200:  # remembered for 10 s
            assert time.monotonic() < deadline
        assert (answer[0], answer[1]["error"]["code"]) == (503, "NOT_ENOUGH_ZONES")
    finally:
        admin.let_zone_in("b", "test")
    until_in_sync(stack, admin, "b")
