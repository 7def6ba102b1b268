"""Compaction on the deployed local stack, in one run: MB/s and peak memory, and what a read costs before and after it.

Many small requests of one partition are produced, read, compacted by the job in a process of its own, and read again.
docs/performance.md has a run's figures.
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
from rich.console import Console

from bench.counting import CountingTransport
from bench.stack import MB, Row, to_table
from penstock import Admin, Consumer, TopicPartition
from penstock.transport import open_transport
from penstock_core import frame
from penstock_core.records import NewRecord, encode

RECORD_BYTES = 1_000
JOB = Path(__file__).parent.parent / "glue_jobs" / "compact.py"


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--megabytes", default=20, show_default=True, help="How much to send for each size of requests.")
@click.option("--request-bytes", "sizes", multiple=True, default=(10_000, 100_000), show_default=True, type=int)
def main(as_json: bool, megabytes: int, sizes: tuple[int, ...]) -> None:
    transport = CountingTransport(open_transport())
    rows = [row for size in sizes for row in _measure(transport, size, megabytes * MB // size)]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        Console().print(to_table("compaction", rows))


def _measure(transport: CountingTransport, request_bytes: int, requests: int) -> list[Row]:
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
    requests_of = f"{requests:,} requests of {request_bytes:,} B"
    return [
        {"": f"{requests_of}: {step}", **row}
        for step, row in (("read before", before), ("compact", compacted), ("read after", after))
    ]


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
        "MB/s": round(megabytes / seconds, 1),
        "gets per MB": round(gets / megabytes, 2),
        "storage calls per MB": round(sum(n for name, n in calls.items() if "." in name) / megabytes, 2),
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
        "MB/s": round(result["bytes_before"] / MB / result["seconds"], 1),
        "refs": f"{result['refs_before']:,} to {result['refs_after']:,}",
        "swaps": result["runs"],
        "peak MiB": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    main()
