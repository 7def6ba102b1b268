"""What a micro-batch of the data source costs at local[2] on the local stack, and one of Spark's own source beside it.

Medians in milliseconds of the steps that Spark reports, without the first micro-batches. Runs on the local stack that
`make run` or `penstock local up` has started.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import penstock_spark
from bench.stack import to_table
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.quorum import Acks
from penstock_core.records import NewRecord, encode
from penstock_spark.storage import find_storage, open_broker

MICRO_BATCHES = 30
TOPIC = "bench-spark-stream"


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(as_json: bool) -> None:
    spark = _session()
    try:
        rows = measure_micro_batches(spark)
    finally:
        spark.stop()
    if as_json:
        click.echo(json.dumps(rows))
    else:
        Console().print(to_table("micro-batches", rows))


def measure_micro_batches(spark: SparkSession) -> list[dict[str, Any]]:
    """Milliseconds of a micro-batch of one record, on the local stack's emulator, and of Spark's own source beside
    it: medians, without the first three."""
    penstock_spark.register(spark)
    broker = open_broker(find_storage())
    topic = create_topic(broker, TOPIC, 1, {}).name
    try:
        for number in range(MICRO_BATCHES):
            produce(broker, [ProduceEntry(topic=topic, partition=0, data=_one(number))], Acks.QUORUM)
        own = spark.readStream.format("penstock").options(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1"
        )
        rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="1", numPartitions="1")
        return [
            {"way": "data source penstock", **_micro_batch(own.load(), {"availableNow": True})},
            {"way": "Spark's rate-micro-batch", **_micro_batch(rate.load(), {"processingTime": "0 seconds"})},
        ]
    finally:
        delete_topic(broker, topic)


def _micro_batch(frame: DataFrame, trigger: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = stream.trigger(**trigger).start()
        while query.isActive and len(query.recentProgress) < MICRO_BATCHES:
            query.awaitTermination(1)
        query.stop()
        progress = [dict(each.durationMs) for each in query.recentProgress if each.numInputRows][3:]
    steps = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
    return {step: round(statistics.median(each.get(step, 0) for each in progress)) for step in steps}


def _one(number: int) -> bytes:
    return encode([NewRecord(int(time.time() * 1_000), None, b"%d" % number)])


def _session() -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    return spark


if __name__ == "__main__":
    main()
