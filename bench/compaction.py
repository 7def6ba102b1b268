"""Measures compaction on the deployed local stack: its MB/s and peak memory, and the cost of a read before and after.

The bench produces many small requests to one partition and reads them. Then the job compacts the partition in a process
of its own, and the bench reads again.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from bench.meters.counting import CountingTransport
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.stack import MB
from penstock import Admin, Consumer, TopicPartition
from penstock.http.transport import open_transport
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode

RECORD_BYTES = 1_000
JOB = Path(__file__).parent.parent / "glue_jobs" / "penstock_spark" / "scripts" / "compact.py"


@click.command(help=__doc__)
@reported("compaction")
@click.option("--megabytes", default=20, show_default=True, help="How much to send for each size of requests.")
@click.option("--request-bytes", "sizes", multiple=True, default=(10_000, 100_000), show_default=True, type=int)
def main(report: Report, megabytes: int, sizes: tuple[int, ...]) -> None:
    transport = CountingTransport(open_transport())
    reads: list[Row] = []
    jobs: list[Row] = []
    for request_bytes in sizes:
        before, job, after = _measure(transport, request_bytes, megabytes * MB // request_bytes)
        setting: Row = {"request_bytes": request_bytes, "megabytes": megabytes}
        reads += [{**setting, "read": "before", **before}, {**setting, "read": "after", **after}]
        jobs.append({**setting, **job})
    report.show("reads", reads)
    report.show("job", jobs)


def _measure(transport: CountingTransport, request_bytes: int, requests: int) -> tuple[Row, Row, Row]:
    """The read before, the job, and the read after."""
    name = f"bench-{time.time_ns():x}"
    with Admin(transport=transport) as admin:
        admin.create_topic(name, partitions=1)
        try:
            _produce(transport, name, request_bytes, requests)
            count = requests * (request_bytes // RECORD_BYTES)
            before = _read(transport, name, count)
            compacted = _compact(name)
            after = _read(transport, name, count)
        finally:
            admin.delete_topic(name)
    return before, compacted, after


def _produce(transport: CountingTransport, topic: str, request_bytes: int, requests: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = request_bytes // RECORD_BYTES
    for _ in range(requests):
        batch = encode([NewRecord(now_ms, None, os.urandom(RECORD_BYTES))] * records)
        header: dict[str, Any] = {"batches": [{"topic": topic, "partition": 0, "length": len(batch)}]}
        answer = transport.call("POST", "/v1/produce", {}, {}, frame.encode(header, [batch]))
        if answer.status != 200 or b'"error"' in answer.body:
            raise RuntimeError(f"produce answered {answer.status}: {answer.body[:500]!r}")


def _read(transport: CountingTransport, topic: str, count: int) -> Row:
    transport.reset()
    started = time.perf_counter()
    seen = 0
    with Consumer(transport=transport, max_poll_records=10_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        while seen < count:
            seen += len(consumer.poll())
    seconds = time.perf_counter() - started
    calls = transport.counts("/v1/fetch").storage_calls
    gets = sum(number for name, number in calls.items() if name.endswith("GetObject"))
    megabytes = count * RECORD_BYTES / MB
    return {
        "gets_per_mb": round(gets / megabytes, 2),
        "storage_calls_per_mb": round(sum(n for name, n in calls.items() if "." in name) / megabytes, 2),
        "mb_per_s": round(megabytes / seconds, 1),
    }


def _compact(topic: str) -> Row:
    done = subprocess.run(
        [sys.executable, str(JOB), "--no-spark", "--topic", topic, "--age-ms-min", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    return {
        "mb_per_s": round(result["bytes_before"] / MB / result["seconds"], 1),
        "refs_before": result["refs_before"],
        "refs_after": result["refs_after"],
        "swaps": result["runs"],
        "peak_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    main()
