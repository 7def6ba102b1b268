"""Measures a micro-batch of the data source at local[2] on the local stack, next to one of Spark's own source.

The bench appends a record to each partition as soon as the query has read the one before, so every read is at the tail.
Milliseconds are medians of the steps that Spark reports, without the first micro-batches. It needs the local stack that
`make run` or `penstock local up` starts.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock_spark
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.spark.local_spark import append_to_all, local_session
from penstock_core.records.codec import NewRecord, encode
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.storage import find_storage, open_instance

MICRO_BATCHES = 20
WARM_UP = 3
TOPIC, COPY = "bench-spark-stream", "bench-spark-stream-copy"
SINKS = {"noop": "noop", "penstock": "topic"}
STEPS = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")


@click.command(help=__doc__)
@reported("spark_stream")
@click.option("--partitions", multiple=True, default=(1, 50), show_default=True, type=click.IntRange(1))
def main(report: Report, partitions: tuple[int, ...]) -> None:
    spark = local_session()
    penstock_spark.register(spark)
    try:
        rows = list(measure(spark, partitions))
    finally:
        spark.stop()
    report.show("steps_of_a_micro_batch_ms", rows)


def measure(spark: SparkSession, partitions: tuple[int, ...]) -> Iterator[Row]:
    """For each pair of source and sink, the steps that Spark reports."""
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="1", numPartitions="1").load()
    for sink, name in SINKS.items():
        for count in partitions:
            with _topics(count):
                source = spark.readStream.format("penstock")
                frame = source.options(subscribe=TOPIC, startingOffsets="earliest").load()
                noun = "partition" if count == 1 else "partitions"
                steps = _steps(frame.selectExpr("value"), sink, partial(_append, count))
                yield {"source": f"penstock, {count} {noun}", "sink": name, **steps}
        with _topics(1):
            steps = _steps(rate.selectExpr("cast(value as string) value"), sink)
            yield {"source": "rate-micro-batch", "sink": name, **steps}


def _steps(frame: DataFrame, sink: str, append: Callable[[], None] | None = None) -> Row:
    """Runs a query for some micro-batches. With `append`, calls it before each one."""
    with tempfile.TemporaryDirectory() as checkpoint:
        options = {"checkpointLocation": checkpoint, **({} if sink == "noop" else {"topic": COPY})}
        query = frame.writeStream.format(sink).options(**options).start()
        try:
            for number in range(MICRO_BATCHES):
                if append is not None:
                    append()
                _until(query, number + 1)
        finally:
            query.stop()
        progress = [dict(each.durationMs) for each in query.recentProgress if each.numInputRows][WARM_UP:]
    return {step: round(statistics.median(each.get(step, 0) for each in progress)) for step in STEPS}


def _until(query: StreamingQuery, micro_batches: int) -> None:
    while sum(each.numInputRows > 0 for each in query.recentProgress) < micro_batches:
        time.sleep(0.02)
        if not query.isActive:
            raise click.ClickException("the query has ended by itself")


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
