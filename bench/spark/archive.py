"""Measures archiving and replaying at local[2], and reads of the table beside Parquet that Spark wrote.

The topic is on the local stack that `make run` starts, so the emulator takes part of the cores. The table is in a
folder. The session is warm before each step. A read takes every column into Spark's `noop`, and the best of several
rounds counts.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial

import click
from pyspark.sql import DataFrame

import penstock_spark
from bench.loads.archive_steps import SparkPlace, archive, replay, table_folder
from bench.loads.filling import fill_topic
from bench.loads.local_spark import local_session
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.storage import find_storage

MB = 1_000_000
PARTITIONS = 4
TOPIC, COPY = "bench-archive", "bench-archive-copy"


@click.command(help=__doc__)
@reported("archive")
@click.option("--mb", default=200, show_default=True, help="How many MB of values are archived.")
@click.option("--rounds", default=3, show_default=True, help="How often each read is timed.")
def main(report: Report, mb: int, rounds: int) -> None:
    spark = local_session()
    place = SparkPlace(spark=spark, storage=find_storage())
    rows: list[Row] = []
    try:
        for value_bytes in (1_024, 100):
            rows += measure(place, value_bytes, mb * MB // value_bytes, rounds)
    finally:
        spark.stop()
    report.show("steps", rows)


def measure(place: SparkPlace, value_bytes: int, count: int, rounds: int) -> list[Row]:
    """MB of values and records per second of each step."""
    instance = place.instance()
    topic, copy = (create_topic(instance, name, PARTITIONS, {}) for name in (TOPIC, COPY))
    try:
        with tempfile.TemporaryDirectory() as folder:
            records = fill_topic(instance, topic, value_bytes, count // 10)
            archive(place, topic, f"{folder}/warm")
            records += fill_topic(instance, topic, value_bytes, count)
            lake = f"{folder}/lake"
            seconds = {"archive": timed(partial(archive, place, topic, lake))}
            seconds["replay"] = timed(partial(replay, place, topic, copy, lake))
            seconds |= _read(place, str(table_folder(lake, TOPIC)), f"{folder}/by-spark", rounds)
    finally:
        for name in (TOPIC, COPY):
            delete_topic(instance, name)
    return to_rows(value_bytes, records, seconds)


def to_rows(value_bytes: int, records: int, seconds: dict[str, float]) -> list[Row]:
    """A row for each step that took so many seconds for all records."""
    return [
        {
            "values": f"{value_bytes} B",
            "step": step,
            "mb_per_s": round(records * value_bytes / MB / taken, 1),
            "records_per_s": round(records / taken),
        }
        for step, taken in seconds.items()
    ]


def _read(place: SparkPlace, table: str, copy: str, rounds: int) -> dict[str, float]:
    """The seconds of reading the table, and of reading a copy that Spark writes to the folder `copy`."""
    spark = place.spark
    columns = [each for each in spark.read.parquet(table).columns if each != "day"]
    spark.read.parquet(table).select(*columns).write.option("compression", "zstd").parquet(copy)
    penstock_spark.register(spark)
    ways: dict[str, Callable[[], DataFrame]] = {
        "read the table (spark.read.parquet)": lambda: spark.read.parquet(table).select(*columns),
        "read Parquet that Spark wrote": lambda: spark.read.parquet(copy).select(*columns),
    }
    seconds: dict[str, float] = {}
    for _ in range(rounds):
        for way, frame in ways.items():
            taken = timed(partial(_drain, frame))
            seconds[way] = min(taken, seconds.get(way, taken))
    return seconds


def _drain(frame: Callable[[], DataFrame]) -> None:
    """Reads every column into nothing."""
    frame().write.format("noop").mode("overwrite").save()


def timed(step: Callable[[], object]) -> float:
    """The seconds that the step takes."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
