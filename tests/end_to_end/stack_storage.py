"""The tables, buckets and logs behind the API of a deployed stack."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_core.storage.head_item import parse_head
from penstock_core.storage.keys import segment_key
from penstock_core.storage.page_item import parse_merge_mark, parse_page
from tests.end_to_end.local_stack import Stack


@dataclass(frozen=True)
class StackStorage:
    """Reads the storage behind the API, and damages it."""

    stack: Stack
    outputs: dict[str, str]

    @property
    def buckets(self) -> list[str]:
        return [self.outputs[f"Zone{zone}Bucket"] for zone in "ABC"]

    def partition(self, topic: str) -> str:
        """Returns the key of partition 0 in the log table."""
        dynamodb = self.stack.root_client("dynamodb")
        found = dynamodb.get_item(TableName=self.outputs["TopicsTable"], Key={"pk": {"S": topic}, "sk": {"S": "topic"}})
        return f"{found['Item']['topic_id']['S']}#0"

    def restart_fetch(self) -> None:
        """Replaces the instances of the function fetch. New instances do not know yet which zone is fast."""
        lambdas = self.stack.root_client("lambda")
        found = lambdas.get_function_configuration(FunctionName="penstock-fetch")["Environment"]["Variables"]
        changed = {**found, "RESTARTED": str(time.time_ns())}
        lambdas.update_function_configuration(FunctionName="penstock-fetch", Environment={"Variables": changed})

    def head(self, topic: str) -> Head:
        """Returns the head of partition 0."""
        key = {"pk": {"S": self.partition(topic)}, "sk": {"S": "head"}}
        dynamodb = self.stack.root_client("dynamodb")
        return parse_head(dynamodb.get_item(TableName=self.outputs["LogTable"], Key=key, ConsistentRead=True)["Item"])

    def refs(self, topic: str) -> list[Ref]:
        """Returns all refs of partition 0."""
        items = self.stack.root_client("dynamodb").query(
            TableName=self.outputs["LogTable"],
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": self.partition(topic)}},
            ConsistentRead=True,
        )["Items"]
        [head] = [parse_head(item) for item in items if item["sk"]["S"] == "head"]
        found = [item for item in items if item["sk"]["S"].startswith("page#") and parse_merge_mark(item) is None]
        pages = [page for page in map(parse_page, found) if page.base_offset < head.tail_base]
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
        """Lets the zone's bucket deny every put of the functions, during the block."""
        s3, bucket = self.stack.root_client("s3"), self.buckets[zone]
        denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
        try:
            yield
        finally:
            s3.delete_bucket_policy(Bucket=bucket)

    def replicate_lines(self, message: str = "repair") -> list[dict[str, Any]]:
        """Returns the log lines of `replicate` with that message. It logs one line `repair` per invocation."""
        logs = self.stack.root_client("logs")
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName="/aws/lambda/penstock-replicate")
        lines = [event["message"].strip() for page in pages for event in page["events"]]
        parsed = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in parsed if line.get("message") == message]
