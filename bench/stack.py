"""Measures throughput, latency and storage calls on the deployed local stack, in one run: `make bench`.

All requests go through the signed HTTPS API, which the emulator serves by HTTP. One machine runs clients, emulator and
functions.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from bench.counting import CountingTransport, Counts
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.http.transport import open_transport
from penstock_core.limits import MIB
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode

MB = 1_000_000
PARTITIONS = 6
NOW_MS = time.time_ns() // 1_000_000


@click.command(help=__doc__)
@reported("stack")
@click.option("--megabytes", default=30, show_default=True, help="How much to send for each record size.")
@click.option("--samples", default=200, show_default=True, help="How many single requests to time.")
def main(report: Report, megabytes: int, samples: int) -> None:
    transport = CountingTransport(open_transport())
    steps: list[tuple[str, Callable[[], list[Row]]]] = [
        ("throughput", lambda: [row for size in (100, 1_000) for row in _throughput(transport, size, megabytes * MB)]),
        ("latency", lambda: _latencies(transport, samples)),
        ("storage_calls_of_a_warm_request", lambda: _storage_calls(transport)),
    ]
    for name, step in steps:
        with report.console.status(name):
            rows = step()
        report.show(name, rows)


def _throughput(transport: CountingTransport, record_bytes: int, total_bytes: int) -> list[Row]:
    """Produces to all partitions at once and reads back. Uncompressed records make MB/s count what travels."""
    count = total_bytes // record_bytes
    values = [os.urandom(record_bytes) for _ in range(1_000)]
    rows: list[Row] = []
    with _topic(transport, PARTITIONS) as topic:
        transport.reset()
        started = time.perf_counter()
        with Producer(transport=transport, compression_type="none") as producer:
            for number in range(count):
                producer.send(topic, values[number % 1_000])
        seconds = time.perf_counter() - started
        rows.append(_rate("produce", record_bytes, count, seconds, transport.counts("/v1/produce")))
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        with Consumer(transport=transport, max_poll_records=10_000) as consumer:
            consumer.assign(partitions)
            seen = 0
            started = time.perf_counter()
            while seen < count:
                seen += len(consumer.poll())
            seconds = time.perf_counter() - started
        rows.append(_rate("consume", record_bytes, count, seconds, transport.counts("/v1/fetch")))
    return rows


def _latencies(transport: CountingTransport, samples: int) -> list[Row]:
    """Sends one record at a time and times its acknowledgement, and its arrival at a long-polling consumer."""
    acknowledged: list[float] = []
    delivered: list[float] = []
    with (
        _topic(transport, 1) as topic,
        Producer(transport=transport, linger_ms=0) as producer,
        Consumer(transport=transport, fetch_wait_ms=5_000) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        for _ in range(samples):
            started = time.perf_counter()
            producer.send(topic, b"x" * 100).result()
            acknowledged.append(time.perf_counter() - started)
            while not consumer.poll(timeout_ms=5_000):
                pass
            delivered.append(time.perf_counter() - started)
    return [_quantiles("produce, 1 record of 100 B", acknowledged), _quantiles("produce to fetch", delivered)]


def _storage_calls(transport: CountingTransport) -> list[Row]:
    """The storage calls that the functions report for warm requests."""
    rows: list[Row] = []
    batch = encode([NewRecord(NOW_MS, None, b"x" * 100)])
    for partitions in (1, PARTITIONS):
        with _topic(transport, partitions) as topic:
            produced = [_produce_once(transport, topic, partitions, batch) for _ in range(3)]
            fetched = [_fetch_once(transport, topic, partitions, 2) for _ in range(3)]
        noun = "partition" if partitions == 1 else "partitions"
        for name, answers in (
            (f"produce to {partitions} {noun}", produced),
            (f"fetch of {partitions} {noun} at the tail", fetched),
        ):
            calls = sorted(answers[-1].storage_calls.items())
            text = ", ".join(f"{count} {call.partition('.')[2]}" for call, count in calls)
            rows.append({"request": name, "storage_calls": text})
    return rows


def _produce_once(transport: CountingTransport, topic: str, partitions: int, batch: bytes) -> Counts:
    """Sends the batch to each partition, in one request; the counts of that request."""
    entries = [{"topic": topic, "partition": number, "length": len(batch)} for number in range(partitions)]
    return _call(transport, "/v1/produce", frame.encode({"batches": entries}, [batch] * partitions))


def _fetch_once(transport: CountingTransport, topic: str, partitions: int, offset: int) -> Counts:
    """Reads each partition from the offset on, 1 MiB in all; the counts of that request."""
    entries = [{"topic": topic, "partition": number, "offset": offset} for number in range(partitions)]
    return _call(transport, "/v1/fetch", json.dumps({"partitions": entries, "max_bytes": MIB}).encode())


def _call(transport: CountingTransport, path: str, body: bytes) -> Counts:
    transport.reset()
    answer = transport.call("POST", path, {}, {}, body)
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:500]!r}")
    return transport.counts(path)


@contextmanager
def _topic(transport: CountingTransport, partitions: int) -> Iterator[str]:
    name = f"bench-{time.time_ns():x}"
    with Admin(transport=transport) as admin:
        admin.create_topic(name, partitions=partitions)
        yield name
        admin.delete_topic(name)


def _rate(name: str, record_bytes: int, count: int, seconds: float, counts: Counts) -> Row:
    return {
        "request": f"{name}, {record_bytes} B",
        "records_per_s": round(count / seconds),
        "mb_per_s": round(count * record_bytes / seconds / MB, 1),
        "requests": counts.requests,
        "storage_calls": counts.storage_calls.total(),
        "storage_calls_per_mb": round(counts.storage_calls.total() / (count * record_bytes / MB), 2),
        "handler_cpu_ms_per_mb": round(counts.cpu_ms / (count * record_bytes / MB), 2),
    }


def _quantiles(name: str, seconds: list[float]) -> Row:
    cuts = statistics.quantiles(seconds, n=100)
    return {"request": name, "p50_ms": round(cuts[49] * 1_000, 1), "p99_ms": round(cuts[98] * 1_000, 1)}


if __name__ == "__main__":
    main()
