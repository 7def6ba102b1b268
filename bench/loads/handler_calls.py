"""Serves warm requests by one handler as Lambda calls it, and prints their CPU as JSON.

`python handler_calls.py FUNCTION EVENT WARM_UP ROUNDS` reads an event from a file. Storage is where the environment
says. The share of the calls to storage is the CPU of the threads inside them: parameters, signatures, HTTP and answers.
The rest is the CPU of the handler itself. The last round is measured until its threads are idle.

`waits` are the calls that a request waits for, one after the other: calls that overlap are one wait.
"""

import gc
import importlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.s3.segments import S3SegmentStore

CONTEXT = SimpleNamespace(
    function_name="penstock",
    function_version="1",
    memory_limit_in_mb=1769,
    invoked_function_arn="arn:aws:lambda:us-east-1:1:function:penstock",
    aws_request_id="request-1",
)
IDLE_S = 0.2


class Share:
    """The CPU of the calls to storage, of all threads together, and when each of them ran."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.cpu_s = 0.0
        self.spans: list[tuple[float, float, str]] = []

    def reset(self) -> None:
        self.cpu_s, self.spans = 0.0, []

    def measured(self, call: Callable[..., Any], name: str = "") -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
            try:
                return call(*arguments, **named)
            finally:
                with self._lock:
                    self.cpu_s += time.thread_time() - begun_cpu_s
                    if name:
                        self.spans.append((begun_s, time.perf_counter(), name))

        return run


def waits_of(spans: list[tuple[float, float, str]]) -> Counter[str]:
    """The waits of some requests, by the call that each began with."""
    waits: Counter[str] = Counter()
    until_s = 0.0
    for begun_s, ended_s, name in sorted(spans):
        if begun_s >= until_s:
            waits[name] += 1
        until_s = max(until_s, ended_s)
    return waits


class Measured:
    """A client of DynamoDB or S3 whose calls count for the share."""

    def __init__(self, client: Any, share: Share) -> None:
        self._client = client
        self._share = share

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name != "get_object":
            return self._share.measured(found, name) if callable(found) else found

        def get_object(**named: Any) -> dict[str, Any]:
            answer: dict[str, Any] = self._share.measured(found, name)(**named)
            read = self._share.measured(answer["Body"].read)
            return {**answer, "Body": SimpleNamespace(read=read)}

        return get_object


def main(function: str, event_file: str, warm_up: int, rounds: int) -> None:
    share = Share()
    _measure_clients(share)
    handler = importlib.import_module(f"penstock_handlers.{function}").handler
    event = json.loads(Path(event_file).read_text())

    def serve() -> None:
        result = handler(event, CONTEXT)
        assert result["statusCode"] == 200, result
        assert result["isBase64Encoded"] or '"error"' not in result["body"], result["body"][:300]

    for _ in range(warm_up):
        serve()
    time.sleep(IDLE_S)
    gc.collect()
    share.reset()
    begun_s = time.process_time()
    for _ in range(rounds):
        serve()
    time.sleep(IDLE_S)
    cpu_s = time.process_time() - begun_s
    print(
        json.dumps(
            {
                "cpu_ms": cpu_s * 1_000 / rounds,
                "storage_ms": share.cpu_s * 1_000 / rounds,
                "calls": len(share.spans) / rounds,
                "waits": {name: number / rounds for name, number in sorted(waits_of(share.spans).items())},
                "peak_mib": peak_mib(),
            }
        )
    )


def peak_mib() -> float:
    """The most memory that this process has had. `getrusage` would count what its parent had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _measure_clients(share: Share) -> None:
    """From now on, stores get clients that count for the share."""
    make_dynamodb, make_s3 = DynamoDbClient.__init__, S3SegmentStore.__init__

    def dynamodb(self: DynamoDbClient, client: Any, *rest: Any) -> None:
        make_dynamodb(self, Measured(client, share), *rest)

    def s3(self: S3SegmentStore, client: Callable[[], Any], *rest: Any) -> None:
        make_s3(self, lambda: Measured(client(), share), *rest)

    DynamoDbClient.__init__ = dynamodb  # type: ignore[assignment,method-assign]
    S3SegmentStore.__init__ = s3  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
