"""Measures a micro-batch of the data source at local[2] on the local stack, beside one of Spark's own source.

The bench appends a record to each partition as soon as the query has read the one before, so every read is at the tail.
Milliseconds are medians of the steps that Spark reports, without the first micro-batches. Storage calls are the calls
of the driver's planning, of a micro-batch, and of a look that finds nothing new. It needs the local stack that
`make run` or `penstock local up` starts.
"""

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.loads.filling import append_to_all
from bench.loads.local_spark import local_session
from bench.meters.metered_source import FOLDER, MeteredDataSource
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.records.codec import NewRecord, encode
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.storage import find_storage, open_instance

MICRO_BATCHES = 20
WARM_UP = 3
IDLE_S = 5
TOPIC, COPY = "bench-spark-stream", "bench-spark-stream-copy"
STEPS = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")


@click.command(help=__doc__)
@reported("spark_stream")
@click.option("--partitions", multiple=True, default=(1, 50), show_default=True, type=click.IntRange(1))
def main(report: Report, partitions: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder  # before the JVM starts, because its workers inherit it
        spark = local_session()
        spark.dataSource.register(MeteredDataSource)
        try:
            steps, calls = measure(spark, partitions, Path(folder))
        finally:
            spark.stop()
    report.show("steps_of_a_micro_batch_ms", steps)
    report.show("own_calls_of_a_micro_batch", calls)


def measure(spark: SparkSession, partitions: tuple[int, ...], folder: Path) -> tuple[list[Row], list[Row]]:
    """For each pair of source and sink, the steps that Spark reports and the cost of the data source's own calls."""
    steps: list[Row] = []
    calls: list[Row] = []
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="1", numPartitions="1").load()
    for sink in ("noop", "penstock-metered"):
        rows = rate.selectExpr("cast(value as string) value")
        for count in partitions:
            with _topics(count):
                source = spark.readStream.format("penstock-metered")
                frame = source.options(subscribe=TOPIC, startingOffsets="earliest").load()
                noun = "partition" if count == 1 else "partitions"
                way: Row = {"source": f"penstock, {count} {noun}", "sink": _name(sink)}
                steps.append({**way, **_steps(frame.selectExpr("value"), sink, partial(_append, count))})
                calls += [{**way, **row} for row in _calls(folder)]
        with _topics(1):
            steps.append({"source": "rate-micro-batch", "sink": _name(sink), **_steps(rows, sink)})
            _calls(folder)
    return steps, calls


def _name(sink: str) -> str:
    return "topic" if sink == "penstock-metered" else sink


def _steps(frame: DataFrame, sink: str, append: Callable[[], None] | None = None) -> Row:
    """Runs a query for some micro-batches. With `append`, calls it before each one, and then leaves the query idle."""
    with tempfile.TemporaryDirectory() as checkpoint:
        options = {"checkpointLocation": checkpoint, **({} if sink == "noop" else {"topic": COPY})}
        query = frame.writeStream.format(sink).options(**options).start()
        try:
            if append is None:
                _until(query, MICRO_BATCHES)
            else:
                for number in range(MICRO_BATCHES):
                    append()
                    _until(query, number + 1)
                time.sleep(IDLE_S)
        finally:
            query.stop()
        progress = [dict(each.durationMs) for each in query.recentProgress if each.numInputRows][WARM_UP:]
    return {step: round(statistics.median(each.get(step, 0) for each in progress)) for step in STEPS}


def _until(query: StreamingQuery, micro_batches: int) -> None:
    while sum(each.numInputRows > 0 for each in query.recentProgress) < micro_batches:
        time.sleep(0.02)
        if not query.isActive:
            raise click.ClickException("the query has ended by itself")


def _calls(folder: Path) -> list[Row]:
    """The calls since the last look into the folder: for each its milliseconds and its storage calls."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(folder.iterdir()):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            lines.setdefault(line["call"], []).append(line)
        path.unlink()
    rows: list[Row] = []
    for call, found in sorted(lines.items()):
        sums: Counter[str] = Counter()
        for line in found:
            sums.update(line["calls"])
        rows.append(
            {
                "call": call,
                "times": len(found),
                "ms": round(statistics.median(line["ms"] for line in found), 1),
                "storage_calls": ", ".join(
                    f"{number / len(found):.3g} {name.partition('.')[2]}" for name, number in sorted(sums.items())
                ),
            }
        )
    return rows


@contextmanager
def _topics(partitions: int) -> Iterator[None]:
    instance = open_instance(find_storage())
    create_topic(instance, TOPIC, partitions, {})
    create_topic(instance, COPY, 1, {})
    try:
        yield
    finally:
        for topic in (TOPIC, COPY):
            delete_topic(instance, topic)


def _append(partitions: int) -> None:
    batch = encode([NewRecord(int(time.time() * 1_000), None, b"x" * 100)])
    append_to_all(open_instance(find_storage()), TOPIC, partitions, batch)


if __name__ == "__main__":
    main()
