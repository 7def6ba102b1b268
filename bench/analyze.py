"""What `analyze` counts a second at local[2], and what its report takes by how many rows of hours there are.

The topic is on the local stack that is near (`make run`), so its emulator takes part of the cores; CPU is that of Spark
and its workers alone. Counting is timed from planning to the files of hours, once the session is warm; the best of
several rounds counts. Reports are made in a process of their own, of a folder of files that this program has made up:
seven days, each partition with two histograms and ten keys for each hour.
"""

import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from rich.console import Console

from bench.archive import MB, PARTITIONS, Row, fill, to_table
from bench.local_spark import local_session
from bench.spark_read import cpu_seconds_used
from penstock_broker.adapters.aws import Storage
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_spark.analysis.hourly import HOURS_SCHEMA, TOP_KEYS, count_hours, hour_name, write_hours
from penstock_spark.analysis.lag import LAG_SCHEMA
from penstock_spark.analysis.measure import HOUR_MS, Window, measured
from penstock_spark.analysis.report import render
from penstock_spark.analysis.summarize import summarize
from penstock_spark.result_store import FolderResultStore
from penstock_spark.storage import find_storage, open_broker

TOPIC = "bench-analyze"
HOURS = 7 * 24
FIRST_MS = 490_000 * HOUR_MS
TOPICS = 20
BUCKETS = 12  # of each histogram


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--mb", default=200, show_default=True, help="How many MB of values are counted.")
@click.option("--rounds", default=3, show_default=True, help="How often each is timed.")
@click.option("--rows", multiple=True, default=(10_000, 400_000), show_default=True, help="Of hours; may come often.")
@click.option("--report-only", is_flag=True, help="Without counting, which needs a stack.")
def main(as_json: bool, mb: int, rounds: int, rows: Sequence[int], report_only: bool) -> None:
    report: dict[str, list[Row]] = {} if report_only else {"counting": measure_counting(mb, rounds)}
    report["report"] = [measure_report(each, rounds) for each in rows]
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for title, found in report.items():
        Console().print(to_table(title, found))


def measure_counting(mb: int, rounds: int) -> list[Row]:
    """Records and MB of values a second, by the size of values."""
    storage = find_storage()
    broker = open_broker(storage)
    spark = local_session()
    found: list[Row] = []
    try:
        for value_bytes in (1_024, 100):
            topic = create_topic(broker, TOPIC, PARTITIONS, {})
            try:
                records = fill(broker, topic, value_bytes, mb * MB // value_bytes)
                taken = [count(spark, storage) for _ in range(rounds + 1)][1:]  # the first warms up
            finally:
                delete_topic(broker, TOPIC)
            seconds, cpu_seconds = map(min, zip(*taken, strict=True))
            found.append(
                {
                    "values": f"{value_bytes} B",
                    "records/s": round(records / seconds),
                    "MB/s": round(records * value_bytes / MB / seconds, 1),
                    "CPU s per million": round(cpu_seconds / records * MB, 2),
                }
            )
    finally:
        spark.stop()
    return found


def count(spark: SparkSession, storage: Storage) -> tuple[float, float]:
    """As the job does it; seconds, and seconds of CPU."""
    with tempfile.TemporaryDirectory() as folder:
        started, used = time.perf_counter(), cpu_seconds_used()
        window = Window(from_ms=0, to_ms=2**53)
        records = measured(spark, storage, window, [TOPIC]).persist(StorageLevel.MEMORY_AND_DISK)
        write_hours(count_hours(records), folder, storage, {TOPIC: PARTITIONS})
        records.unpersist()
        return time.perf_counter() - started, cpu_seconds_used() - used


def measure_report(rows: int, rounds: int) -> Row:
    """Seconds from the files to the page, and the process's memory."""
    with tempfile.TemporaryDirectory() as folder:
        partitions = max(1, round(rows / HOURS / TOPICS))
        make_up(Path(folder), partitions)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as alone:
            found = [alone.submit(make_report, folder).result() for _ in range(rounds)]
    summed, summed_cpu, whole, whole_cpu, peak_mib = map(min, zip(*found, strict=True))
    return {
        "rows of hours": HOURS * TOPICS * partitions,
        "summary, s": round(summed, 2),
        "summary, CPU s": round(summed_cpu, 2),
        "whole report, s": round(whole, 2),
        "whole report, CPU s": round(whole_cpu, 2),
        "peak MiB": round(peak_mib),
    }


def make_report(folder: str) -> tuple[float, float, float, float, float]:
    """Seconds and CPU seconds of the summary, of it and the page, and the most memory that this process ever had."""
    started, used = time.perf_counter(), time.process_time()
    summary = summarize(
        FolderResultStore(Path(folder)),
        from_ms=FIRST_MS,
        to_ms=FIRST_MS + HOURS * HOUR_MS,
        topics={},
        only=(),
        lags=LAG_SCHEMA.empty_table(),
        runs_max=1,
    )
    summed, summed_cpu = time.perf_counter() - started, time.process_time() - used
    render(summary, title="Bench", run_ms=FIRST_MS + HOURS * HOUR_MS, place=folder)
    whole, whole_cpu = time.perf_counter() - started, time.process_time() - used
    return summed, summed_cpu, whole, whole_cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make_up(folder: Path, partitions: int) -> None:
    """Files of hours of 20 topics with so many partitions each."""
    chance = np.random.default_rng(1)
    results = FolderResultStore(folder)
    rows = TOPICS * partitions
    topics = np.repeat([f"topic-{each:02d}" for each in range(TOPICS)], partitions)
    numbers = np.tile(np.arange(partitions), TOPICS)
    for hour_ms in range(FIRST_MS, FIRST_MS + HOURS * HOUR_MS, HOUR_MS):
        records = chance.integers(1_000, 100_000, rows)
        columns: dict[str, Any] = {
            "topic": topics,
            "partition": numbers,
            "hour": np.full(rows, hour_ms),
            "size_histogram": _histograms(chance, rows, 36),
            "append_lag_histogram": _histograms(chance, rows, 16),
            "top_keys": _top_keys(chance, rows),
            "null_keys": np.zeros(rows, np.int64),
            "topic_partitions": np.full(rows, partitions),
            "heat": np.ones(rows),
            "top_key_share": np.full(rows, 0.1),
        }
        for name in HOURS_SCHEMA.names:
            columns.setdefault(name, records)
        table = pa.table({name: pa.array(columns[name]).cast(HOURS_SCHEMA.field(name).type) for name in columns})
        sink = BytesIO()
        pq.write_table(table.select(HOURS_SCHEMA.names), sink, compression="zstd")
        results.put(hour_name(hour_ms), sink.getvalue())


def _histograms(chance: np.random.Generator, rows: int, first: int) -> pa.Array:
    buckets = np.tile(np.arange(first, first + BUCKETS, dtype=np.int32), rows)
    ends = pa.array(np.arange(rows + 1) * BUCKETS, pa.int32())
    return pa.MapArray.from_arrays(ends, buckets, chance.integers(1, 10_000, len(buckets)))


def _top_keys(chance: np.random.Generator, rows: int) -> pa.Array:
    count = rows * TOP_KEYS
    keys = [b"customer-%08d" % each for each in chance.integers(0, 20 * count, count)]
    records = chance.integers(1, 1_000, count)
    entries = pa.StructArray.from_arrays(
        [pa.array(keys), pa.repeat(pa.scalar(17, pa.int32()), count), pa.array(records), pa.array(records * 100)],
        names=["key", "key_bytes", "records", "bytes"],
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * TOP_KEYS, pa.int32()), entries)


if __name__ == "__main__":
    main()
