"""Delayed records on the deployed stack: they come by messages, in time and once; cancelled ones never come."""

import json
import time
from typing import Any

import pytest

from penstock.http.transport import HttpTransport
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.deadlines import until

pytestmark = pytest.mark.stack
LATE_S_MAX = 5.0


def call(transport: HttpTransport, method: str, path: str, body: object = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    answer = transport.call(method, path, {}, {"Content-Type": "application/json"}, data)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def values(transport: HttpTransport, topic: str) -> list[str]:
    found = call(transport, "GET", f"/v1/topics/{topic}/partitions/0/records")
    return [record["value"] for record in found["records"]]


def test_delayed_records_come_in_time_and_cancelled_ones_never(transport: HttpTransport, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    due_ms = time.time_ns() // 1_000_000 + 2_000
    fields = {"partition": 0, "deliver_at_ms": due_ms, "cancellable": True}
    told = call(transport, "POST", f"{path}/records", {"records": [{"value": str(n), **fields} for n in range(3)]})
    listed = call(transport, "GET", f"{path}/scheduled")["scheduled"]
    assert [each["scheduled_id"] for each in listed] == [each["scheduled_id"] for each in told["offsets"]]
    call(transport, "DELETE", f"{path}/scheduled/{listed[1]['scheduled_id']}")
    assert values(transport, topic) == [] or time.time_ns() // 1_000_000 >= due_ms
    until(lambda: len(values(transport, topic)) == 2)
    late_s = time.time() - due_ms / 1_000
    assert 0 <= late_s < LATE_S_MAX
    assert values(transport, topic) == ["0", "2"]
    assert call(transport, "GET", f"{path}/scheduled")["scheduled"] == []


def test_run_of_each_minute_delivers_what_no_message_has(
    stack: Stack, transport: HttpTransport, topic: str, storage: StackStorage
) -> None:
    """The message is taken out of the queue, as if it was lost."""
    sqs = stack.root_client("sqs")
    due_ms = time.time_ns() // 1_000_000 + 1_500
    records = [{"value": "found", "partition": 0, "deliver_at_ms": due_ms}]
    call(transport, "POST", f"/v1/topics/{topic}/records", {"records": records})
    sqs.purge_queue(QueueUrl=storage.outputs["TimersQueueUrl"])
    client = stack.root_client("lambda")

    def run() -> bool:
        answer = client.invoke(FunctionName="penstock-promote", Payload=b"{}")
        assert "FunctionError" not in answer, answer["Payload"].read()
        return values(transport, topic) == ["found"]

    until(run)
    assert time.time_ns() // 1_000_000 >= due_ms
