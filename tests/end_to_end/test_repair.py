"""Repair on the deployed stack: what a zone lost, let rot or never got comes back; healthy appends cost nothing."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Admin
from penstock.transport import HttpTransport
from penstock_core.items import parse_head, parse_page
from penstock_core.keys import segment_key
from penstock_core.ref import Ref
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.test_log import append, read_all

pytestmark = pytest.mark.stack
DEADLINE_S = 120


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@dataclass(frozen=True)
class Storage:
    """Looks at, and harms, what lies behind the API."""

    stack: Stack
    outputs: dict[str, str]

    @property
    def buckets(self) -> list[str]:
        return [self.outputs[f"Zone{zone}Bucket"] for zone in "ABC"]

    def partition(self, topic: str) -> str:
        """Partition 0 as the log table's keys name it."""
        dynamodb = self.stack.root_client("dynamodb")
        found = dynamodb.get_item(TableName=self.outputs["TopicsTable"], Key={"pk": {"S": topic}, "sk": {"S": "topic"}})
        return f"{found['Item']['topic_id']['S']}#0"

    def restart_fetch(self) -> None:
        """The fetch function's instances give way to new ones, which have not learned which zone is fast."""
        lambdas = self.stack.root_client("lambda")
        found = lambdas.get_function_configuration(FunctionName="penstock-fetch")["Environment"]["Variables"]
        changed = {**found, "RESTARTED": str(time.time_ns())}
        lambdas.update_function_configuration(FunctionName="penstock-fetch", Environment={"Variables": changed})

    def refs(self, topic: str) -> list[Ref]:
        """All refs of partition 0."""
        items = self.stack.root_client("dynamodb").query(
            TableName=self.outputs["LogTable"],
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": self.partition(topic)}},
            ConsistentRead=True,
        )["Items"]
        pages = [parse_page(item) for item in items if item["sk"]["S"].startswith("page#")]
        [head] = [parse_head(item) for item in items if item["sk"]["S"] == "head"]
        return [ref for page in pages for ref in page.refs] + list(head.tail)

    def body(self, zone: int, ref: Ref) -> bytes | None:
        s3 = self.stack.root_client("s3")
        try:
            answer = s3.get_object(Bucket=self.buckets[zone], Key=segment_key(ref.segment_id))
        except s3.exceptions.NoSuchKey:
            return None
        return bytes(answer["Body"].read())

    def bodies(self, ref: Ref) -> list[bytes | None]:
        return [self.body(zone, ref) for zone in range(3)]

    def lose(self, zone: int, ref: Ref) -> None:
        self.stack.root_client("s3").delete_object(Bucket=self.buckets[zone], Key=segment_key(ref.segment_id))

    def flip(self, zone: int, ref: Ref, position: int) -> None:
        data = bytearray(self.body(zone, ref) or b"")
        data[position] ^= 1
        self.stack.root_client("s3").put_object(
            Bucket=self.buckets[zone], Key=segment_key(ref.segment_id), Body=bytes(data)
        )

    @contextmanager
    def refusing_puts(self, zone: int) -> Iterator[None]:
        """The zone's bucket denies every put to the functions."""
        s3, bucket = self.stack.root_client("s3"), self.buckets[zone]
        denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
        try:
            yield
        finally:
            s3.delete_bucket_policy(Bucket=bucket)

    def replicate_lines(self, message: str = "repair") -> list[dict[str, Any]]:
        """What `replicate` has logged: one line `repair` per invocation."""
        logs = self.stack.root_client("logs")
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName="/aws/lambda/penstock-replicate")
        lines = [event["message"].strip() for page in pages for event in page["events"]]
        parsed = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in parsed if line.get("message") == message]


@pytest.fixture(scope="module")
def storage(stack: Stack) -> Storage:
    [found] = stack.root_client("cloudformation").describe_stacks(StackName="Penstock")["Stacks"]
    return Storage(stack, {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]})


@pytest.fixture(scope="module")
def transport(stack: Stack) -> Iterator[HttpTransport]:
    transport = stack.transport()
    yield transport
    transport.close()


@pytest.fixture
def topic(transport: HttpTransport, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:200].replace("[", ".").replace("]", "")
    with Admin(transport=transport) as admin:
        admin.create_topic(name, partitions=1)
    return str(name)


def test_lost_and_rotten_copies_are_served_from_elsewhere_and_healed(
    storage: Storage, transport: HttpTransport, topic: str
) -> None:
    append(transport, topic, b"value", acks="all")
    [ref] = storage.refs(topic)
    whole = storage.body(2, ref)
    assert whole is not None
    storage.lose(0, ref)
    storage.flip(1, ref, 70)
    storage.restart_fetch()  # an instance that has read nothing yet asks the zones in order, so it meets both

    def is_healed() -> bool:
        assert read_all(transport, topic) == [(0, b"value")]
        return storage.bodies(ref) == [whole] * 3

    until(is_healed, "the copies were not healed")


def test_put_that_a_zone_refused_is_made_good_when_the_zone_takes_puts_again(
    storage: Storage, transport: HttpTransport, topic: str
) -> None:
    append(transport, topic, b"before", acks="all")
    with storage.refusing_puts(2):
        append(transport, topic, b"missed")
        ref = storage.refs(topic)[-1]
        assert ref.zones == 0b011
        until(lambda: bool(storage.replicate_lines("repair_postponed")), "nobody tried to repair it")
        assert storage.body(2, ref) is None
    until(lambda: storage.refs(topic)[-1].zones == 0b111, "the ref does not say that every zone has it")
    first, second, third = storage.bodies(ref)
    assert first is not None
    assert first == second == third
    assert read_all(transport, topic) == [(0, b"before"), (1, b"missed")]


def test_healthy_appends_invoke_replicate_never(storage: Storage, transport: HttpTransport, topic: str) -> None:
    for count in range(40):  # with rolls among them
        append(transport, topic, b"%d" % count, acks="all")
    # The stream is in order: when this one has come through, all those before it have.
    with storage.refusing_puts(1):
        append(transport, topic, b"missed")
    until(lambda: storage.refs(topic)[-1].zones == 0b111, "the ref does not say that every zone has it")
    partition = storage.partition(topic)
    assert [line["records"] for line in storage.replicate_lines() if partition in line["partitions"]] == [1]


def test_scrub_heals_what_nobody_has_read(stack: Stack, storage: Storage, transport: HttpTransport, topic: str) -> None:
    for count in range(20):  # a page and a tail
        append(transport, topic, b"%d" % count, acks="all")
    refs = storage.refs(topic)
    whole = [storage.body(2, ref) for ref in refs]
    for index, ref in enumerate(refs):
        if index % 2:
            storage.lose(index % 3, ref)
        else:
            storage.flip(index % 3, ref, 70)
    answer = stack.root_client("lambda").invoke(FunctionName="penstock-scrub", Payload=b"{}")
    done = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, done
    # Other tests on this stack have left harm too.
    assert done["copied"] >= 10
    assert done["healed"] >= 10
    assert done["is_finished"]
    assert [storage.bodies(ref) for ref in refs] == [[body] * 3 for body in whole]
    assert read_all(transport, topic) == [(count, b"%d" % count) for count in range(20)]
