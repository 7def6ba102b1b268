"""What a micro-batch of the data source costs at local[2] on the local stack, and one of Spark's own source beside it.

A record is appended to each of some partitions whenever the query has come to the one before, so that all that is read
lies at the tail. Milliseconds are medians of the steps that Spark reports, without the first micro-batches; storage
calls are those of the driver's planning, a micro-batch, and of a look that finds nothing new. Runs on the local stack
that `make run` or `penstock local up` has started.
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
from rich.console import Console

from bench.local_spark import local_session
from bench.metered_source import FOLDER, MeteredDataSource
from bench.stack import to_table, to_table_of_columns
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.errors import PenstockError
from penstock_core.quorum import Acks
from penstock_core.records import NewRecord, encode
from penstock_spark.storage import find_storage, open_broker

MICRO_BATCHES = 20
WARM_UP = 3
IDLE_S = 5
TOPIC, COPY = "bench-spark-stream", "bench-spark-stream-copy"
STEPS = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--partitions", multiple=True, default=(1, 50), show_default=True, type=click.IntRange(1))
def main(as_json: bool, partitions: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder  # before the JVM starts, which hands it on
        spark = local_session()
        spark.dataSource.register(MeteredDataSource)
        try:
            steps, calls = measure(spark, partitions, Path(folder))
        finally:
            spark.stop()
    if as_json:
        click.echo(json.dumps({"steps": steps, "calls": calls}))
        return
    Console().print(to_table_of_columns("a micro-batch, ms", steps))
    Console().print(to_table("its calls", calls))


def measure(
    spark: SparkSession, partitions: tuple[int, ...], folder: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What Spark reports of each way, and what the data source's calls cost in each."""
    steps: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="1", numPartitions="1").load()
    for sink in ("noop", "penstock-metered"):
        rows = rate.selectExpr("cast(value as string) value")
        for count in partitions:
            with _topics(count):
                source = spark.readStream.format("penstock-metered")
                frame = source.options(subscribe=TOPIC, startingOffsets="earliest").load()
                way = {"source": f"penstock, {count} partitions", "sink": sink.removesuffix("-metered")}
                steps.append({**way, **_steps(frame.selectExpr("value"), sink, partial(_append, count))})
                calls += [{**way, **row} for row in _calls(folder)]
        with _topics(1):
            steps.append({"source": "rate-micro-batch", "sink": sink.removesuffix("-metered"), **_steps(rows, sink)})
            _calls(folder)
    return steps, calls


def _steps(frame: DataFrame, sink: str, append: Callable[[], None] | None = None) -> dict[str, Any]:
    """Runs a query for some micro-batches; of a source that must be appended to, also idle for a while."""
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


def _calls(folder: Path) -> list[dict[str, Any]]:
    """What was written down since the last time: for each call its milliseconds, and its storage calls."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(folder.iterdir()):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            lines.setdefault(line["call"], []).append(line)
        path.unlink()
    rows = []
    for call, found in sorted(lines.items()):
        sums: Counter[str] = Counter()
        for line in found:
            sums.update(line["calls"])
        rows.append(
            {
                "call": call,
                "times": len(found),
                "ms": round(statistics.median(line["ms"] for line in found), 1),
                "storage calls of one": ", ".join(
                    f"{number / len(found):.3g} {name.partition('.')[2]}" for name, number in sorted(sums.items())
                ),
            }
        )
    return rows


@contextmanager
def _topics(partitions: int) -> Iterator[None]:
    broker = open_broker(find_storage())
    create_topic(broker, TOPIC, partitions, {})
    create_topic(broker, COPY, 1, {})
    try:
        yield
    finally:
        for topic in (TOPIC, COPY):
            delete_topic(broker, topic)


def _append(partitions: int) -> None:
    """Until every partition has it: an emulator on a busy machine is late now and then."""
    batch = encode([NewRecord(int(time.time() * 1_000), None, b"x" * 100)])
    left = [ProduceEntry(topic=TOPIC, partition=number, data=batch) for number in range(partitions)]
    while left:
        results = produce(open_broker(find_storage()), left, Acks.QUORUM)
        left = [entry for entry, result in zip(left, results, strict=True) if isinstance(result, PenstockError)]


if __name__ == "__main__":
    main()
