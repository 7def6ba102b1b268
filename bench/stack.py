"""Throughput, latency, storage calls and handler CPU on the deployed local stack, in one run: `make bench`.

Everything goes through the signed HTTPS API (here: the emulator's HTTP), on one machine that runs the clients, the
emulator and the functions alike. docs/performance.md has a run's figures.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.counting import CountingTransport, Counts
from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.transport import open_transport
from penstock_core import frame
from penstock_core.limits import MIB
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, encode

MB = 1_000_000
PARTITIONS = 6
NOW_MS = time.time_ns() // 1_000_000
Row = dict[str, Any]


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--megabytes", default=30, show_default=True, help="How much to send for each record size.")
@click.option("--samples", default=200, show_default=True, help="How many single requests to time.")
def main(as_json: bool, megabytes: int, samples: int) -> None:
    console = Console(stderr=as_json)
    transport = CountingTransport(open_transport())
    report: dict[str, list[Row]] = {}
    steps: list[tuple[str, Callable[[], list[Row]]]] = [
        ("throughput", lambda: [row for size in (100, 1_000) for row in _throughput(transport, size, megabytes * MB)]),
        ("latency", lambda: _latencies(transport, samples)),
        ("storage calls per request", lambda: _storage_calls(transport)),
        ("handler CPU per 1 MiB request", lambda: _handler_cpu(transport, samples // 10)),
    ]
    for name, step in steps:
        with console.status(name):
            report[name] = step()
        if not as_json:
            console.print(to_table(name, report[name]))
    if as_json:
        click.echo(json.dumps(report))


def _throughput(transport: CountingTransport, record_bytes: int, total_bytes: int) -> list[Row]:
    """All partitions at once, uncompressed, so that MB/s are what travels; then the same records back."""
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
    """One record at a time: until it is acknowledged, and until a long-polling consumer has it."""
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
    """Warm requests, as the functions counted them."""
    rows = []
    batch = encode([NewRecord(NOW_MS, None, b"x" * 100)])
    for partitions in (1, PARTITIONS):
        with _topic(transport, partitions) as topic:
            produced = [produce_once(transport, topic, partitions, batch) for _ in range(3)]
            fetched = [fetch_once(transport, topic, partitions, 2) for _ in range(3)]
        for name, answers in ((f"produce to {partitions}", produced), (f"fetch of {partitions} at the tail", fetched)):
            calls = {call: count for call, count in answers[-1].items() if "." in call}
            rows.append({"request": name, "calls": ", ".join(f"{count} {call}" for call, count in calls.items())})
    return rows


def _handler_cpu(transport: CountingTransport, samples: int) -> list[Row]:
    """The same bytes as few or as many records, in turns: what a handler spends must not depend on it."""
    spent: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as topics:
        batches = [
            (records, topics.enter_context(_topic(transport, 1)), batch_of(records, 1_000_000))
            for records in (1, 100, 10_000)
        ]
        for number in range(samples):
            for records, topic, batch in batches:
                for name, answer in (
                    ("produce", produce_once(transport, topic, 1, batch)),
                    ("fetch", fetch_once(transport, topic, 1, number * records)),
                ):
                    spent.setdefault((name, records), []).append(answer["cpu_ms"] * MIB / len(batch))
    return [
        {"request": name, "records": records, "cpu ms per MiB": round(statistics.median(values), 2)}
        for (name, records), values in sorted(spent.items())
    ]


def produce_once(transport: CountingTransport, topic: str, partitions: int, batch: bytes) -> Row:
    """The batch to each partition, in one request; the calls and the CPU that its answer reports."""
    entries = [{"topic": topic, "partition": number, "length": len(batch)} for number in range(partitions)]
    return _call(transport, "/v1/produce", frame.encode({"batches": entries}, [batch] * partitions))


def fetch_once(transport: CountingTransport, topic: str, partitions: int, offset: int) -> Row:
    """Of each partition from the offset on, 1 MiB in all; the calls and the CPU that its answer reports."""
    entries = [{"topic": topic, "partition": number, "offset": offset} for number in range(partitions)]
    return _call(transport, "/v1/fetch", json.dumps({"partitions": entries, "max_bytes": MIB}).encode())


def _call(transport: CountingTransport, path: str, body: bytes) -> Row:
    transport.reset()
    answer = transport.call("POST", path, {}, {}, body)
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:500]!r}")
    counts = transport.counts(path)
    return {**dict(sorted(counts.storage_calls.items())), "cpu_ms": round(counts.cpu_ms, 2)}


def batch_of(records: int, size: int) -> bytes:
    """About that many bytes of random values."""
    overhead = 8 if records > 1 else 12
    return encode([NewRecord(NOW_MS, None, os.urandom(size // records - overhead))] * records, Compression.NONE)


@contextmanager
def _topic(transport: CountingTransport, partitions: int) -> Iterator[str]:
    name = f"bench-{time.time_ns():x}"
    with Admin(transport=transport) as admin:
        admin.create_topic(name, partitions=partitions)
        yield name
        admin.delete_topic(name)


def _rate(name: str, record_bytes: int, count: int, seconds: float, counts: Counts) -> Row:
    return {
        "": f"{name}, {record_bytes} B",
        "records/s": round(count / seconds),
        "MB/s": round(count * record_bytes / seconds / MB, 1),
        "requests": counts.requests,
        "storage calls": counts.storage_calls.total(),
        "storage calls per MB": round(counts.storage_calls.total() / (count * record_bytes / MB), 2),
        "handler CPU ms per MB": round(counts.cpu_ms / (count * record_bytes / MB), 2),
    }


def _quantiles(name: str, seconds: list[float]) -> Row:
    cuts = statistics.quantiles(seconds, n=100)
    return {"": name, "p50 ms": round(cuts[49] * 1_000, 1), "p99 ms": round(cuts[98] * 1_000, 1)}


def to_table(name: str, rows: list[Row]) -> Table:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = Table(*columns, title=name)
    for row in rows:
        table.add_row(*(str(row.get(column, "")) for column in columns))
    return table


def to_table_of_columns(name: str, rows: list[Row]) -> Table:
    """The same with a column for each row, headed by its first value: for rows that are wider than a terminal."""
    first, *others = dict.fromkeys(column for row in rows for column in row)
    table = Table(first, *(str(row[first]) for row in rows), title=name)
    for column in others:
        table.add_row(column.replace("_", " "), *(str(row.get(column, "")) for row in rows))
    return table


if __name__ == "__main__":
    main()
