"""Measures a micro-batch of the data source at local[2] on the local stack, next to ones of other sources.

First the bench appends a record to each partition as soon as the query has read the one before, so every read is at the
tail. Then it appends records of 1 KB at a steady rate, 10 requests a second to 4 partitions in turn. The constant
sources are the ceilings of a source in Python: one has a record for each micro-batch in the driver, one in a task.
Milliseconds are medians of the steps that Spark reports, without the first micro-batches. It needs the local stack that
`make run` or `penstock local up` starts.
"""

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.query import StreamingQuery

import penstock_spark
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.spark.local_spark import append_to_all, local_session
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.storage import find_storage, open_instance

MICRO_BATCHES = 20
WARM_UP = 3
REQUESTS_PER_S = 10
RATE_PARTITIONS = 4
VALUE_BYTES = 1_024
TOPIC, COPY = "bench-spark-stream", "bench-spark-stream-copy"
SINKS = {"noop": "noop", "penstock": "topic"}
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
CHECKPOINTS = ("FileContextBasedCheckpointFileManager", "FileSystemBasedCheckpointFileManager")
STEPS = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")

Progress = list[dict[str, Any]]


class ConstantInDriver(DataSource):
    """A micro-batch for each question, of one record that Spark keeps in the driver. It reads nothing."""

    @classmethod
    def name(cls) -> str:
        return "constant-in-driver"

    def schema(self) -> str:
        return "value binary"

    def simpleStreamReader(self, schema: object) -> SimpleDataSourceStreamReader:  # noqa: ARG002, N802  # Spark's names
        return _DriversConstant()


class ConstantInTask(ConstantInDriver):
    """The same, of one record that a task makes."""

    @classmethod
    def name(cls) -> str:
        return "constant-in-task"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's names
        return _TasksConstant()


class _DriversConstant(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as the names below
        return {"number": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[bytes]], dict[str, int]]:
        return iter([(b"x" * 100,)]), {"number": start["number"] + 1}

    def readBetweenOffsets(self, start: object, end: object) -> Iterator[tuple[bytes]]:  # noqa: ARG002, N802
        return iter([(b"x" * 100,)])


class _TasksConstant(DataSourceStreamReader):
    def __init__(self) -> None:
        self._number = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as the names below
        return {"number": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802  # as Spark before 4.2 calls it
        self._number += 1
        return {"number": self._number}

    def partitions(self, start: object, end: object) -> list[InputPartition]:  # noqa: ARG002  # Spark's names
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # Spark's name
        return iter([pa.RecordBatch.from_pydict({"value": [b"x" * 100]})])


@click.command(help=__doc__)
@reported("spark_stream")
@click.option("--partitions", multiple=True, default=(1, 50), show_default=True, type=click.IntRange(1))
@click.option("--records-per-s", default=1_000, show_default=True, type=click.IntRange(REQUESTS_PER_S))
@click.option("--seconds", default=30, show_default=True, help="Length of the steady run.")
def main(report: Report, partitions: tuple[int, ...], records_per_s: int, seconds: int) -> None:
    spark = local_session({"spark.sql.streaming.numRecentProgressUpdates": "10000"})
    penstock_spark.register(spark)
    for source in (ConstantInDriver, ConstantInTask):
        spark.dataSource.register(source)
    try:
        report.show("steps_of_a_micro_batch_ms", list(measure(spark, partitions)))
        report.show("at_a_steady_rate_ms", list(measure_steady(spark, records_per_s, seconds)))
    finally:
        spark.stop()


def measure(spark: SparkSession, partitions: tuple[int, ...]) -> Iterator[Row]:
    """For each pair of source and sink, the steps that Spark reports."""
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="1", numPartitions="1").load()
    others = {
        "rate-micro-batch": rate.selectExpr("cast(value as string) value"),
        "constant, in the driver": spark.readStream.format("constant-in-driver").load(),
        "constant, in a task": spark.readStream.format("constant-in-task").load(),
    }
    _micro_batches(others["constant, in a task"], "noop")  # not counted: the JVM has compiled nothing yet
    for sink, name in SINKS.items():
        for number in partitions:
            with _topics(number):
                noun = "partition" if number == 1 else "partitions"
                progress = _micro_batches(_values(spark), sink, partial(_append, number))
                yield {"source": f"penstock, {number} {noun}", "sink": name, **_medians(progress)}
        for source, frame in others.items():
            with _topics(1):
                yield {"source": source, "sink": name, **_medians(_micro_batches(frame, sink))}


def measure_steady(spark: SparkSession, records_per_s: int, seconds: int) -> Iterator[Row]:
    """The steps of micro-batches that follow each other while records come steadily, and their 95th hundredth.

    By each of Spark's two ways to write a checkpoint. By the default one, Hadoop starts a dozen processes for each
    micro-batch, `readlink` and `chmod`.
    """
    for written_by in CHECKPOINTS:
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", f"{CHECKPOINTING}.{written_by}")
        ended = threading.Event()
        with _topics(RATE_PARTITIONS), _query(_values(spark), "noop") as (query, commits):
            producer = threading.Thread(target=_append_steadily, args=(records_per_s, ended), daemon=True)
            producer.start()
            try:
                _await(query, commits / str(MICRO_BATCHES))
                begun = len(_progress(query))
                time.sleep(seconds)
                progress = _progress(query)[begun:]
            finally:
                ended.set()
                producer.join()
        taken = sorted(each["durationMs"]["triggerExecution"] for each in progress)
        yield {
            "source": f"penstock, {RATE_PARTITIONS} partitions",
            "checkpoint": written_by.removesuffix("CheckpointFileManager"),
            "records_per_s": round(sum(each["numInputRows"] for each in progress) / seconds),
            "micro_batches": len(progress),
            **_medians(progress),
            "triggerExecution_p95": taken[len(taken) * 95 // 100],
        }


def _values(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("penstock").options(subscribe=TOPIC, startingOffsets="earliest")
    return source.load().selectExpr("value")


def _micro_batches(frame: DataFrame, sink: str, append: Callable[[], None] | None = None) -> Progress:
    """Runs a query for some micro-batches. With `append`, calls it before each one."""
    with _query(frame, sink) as (query, commits):
        for number in range(MICRO_BATCHES):
            if append is not None:
                append()
            _await(query, commits / str(number))
        while len(progress := _progress(query)) < MICRO_BATCHES:
            time.sleep(0.01)
    return progress[WARM_UP:MICRO_BATCHES]


def _await(query: StreamingQuery, commit: Path) -> None:
    """Waits for a micro-batch by its file: to ask Spark would take Spark's time."""
    while not commit.exists():
        time.sleep(0.01)
        if not query.isActive:
            raise click.ClickException("the query has ended by itself")


@contextmanager
def _query(frame: DataFrame, sink: str) -> Iterator[tuple[StreamingQuery, Path]]:
    with tempfile.TemporaryDirectory() as checkpoint:
        options = {"checkpointLocation": checkpoint, **({} if sink == "noop" else {"topic": COPY})}
        query = frame.writeStream.format(sink).options(**options).start()
        try:
            yield query, Path(checkpoint) / "commits"
        finally:
            query.stop()


def _progress(query: StreamingQuery) -> Progress:
    """Spark's progress of each micro-batch with rows."""
    return [found for each in query.recentProgress if (found := json.loads(each.json))["numInputRows"]]


def _medians(progress: Progress) -> Row:
    return {step: round(statistics.median(each["durationMs"].get(step, 0) for each in progress)) for step in STEPS}


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


def _append_steadily(records_per_s: int, ended: threading.Event) -> None:
    """Appends a request each tenth of a second, to the next partition. One that is late does not delay the next."""
    instance, begun = open_instance(find_storage()), time.monotonic()
    for number in count():
        if ended.wait(max(0.0, begun + number / REQUESTS_PER_S - time.monotonic())):
            return
        records = [NewRecord(int(time.time() * 1_000), None, b"x" * VALUE_BYTES)] * (records_per_s // REQUESTS_PER_S)
        entry = ProduceEntry(topic=TOPIC, partition=number % RATE_PARTITIONS, data=encode(records))
        produce(instance, [entry], Acks.QUORUM)


if __name__ == "__main__":
    main()
