"""The exit of the interpreter: it delivers every record, and no thread holds it up."""

import subprocess
import sys

import pytest

from tests.support.child_process import bare_environment, child_process

FORGOTTEN = """
import json
from penstock import Consumer, Producer, Response
from penstock_core.records import frame

class Service:
    def call(self, method, path, query, headers, body):
        if path == "/v1/produce":
            header, data = frame.decode(body)
            print("produced", len(header["batches"]), b"forgotten" in bytes(data))
            answer = {"results": [{"topic": "t", "partition": 0, "base_offset": 0, "next_offset": 1}]}
        elif path == "/v1/fetch":
            return Response(503, {}, b"{}")
        elif path.endswith("/offsets"):
            answer = {"offsets": [{"partition": 0, "offset": 0, "timestamp_ms": None}]}
        else:
            answer = {"name": "t", "topic_id": "x", "partitions": 1, "config": {}, "created_at_ms": 0, "offsets": []}
            answer["writable_partitions"] = 1
        return Response(200, {}, json.dumps(answer).encode())

    def close(self):
        pass

producer = Producer(transport=Service(), linger_ms=600_000, compression_type="none")
consumer = Consumer("t", transport=Service(), retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
consumer.poll(timeout_ms=0)
producer.send("t", b"sent and forgotten")
"""


@pytest.mark.slow
def test_interpreter_exit_delivers_all_records_and_does_not_hang() -> None:
    with child_process(
        [sys.executable, "-c", FORGOTTEN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bare_environment(),
    ) as process:
        written, errors = process.communicate()
    assert (process.returncode, written) == (0, b"produced 1 True\n")
    assert b"Traceback" not in errors
