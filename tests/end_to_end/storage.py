"""What lies behind the API of a deployed stack, to look at and to harm."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock_core.items import parse_head, parse_page
from penstock_core.keys import segment_key
from penstock_core.ref import Ref
from tests.end_to_end.local_stack import Stack


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
