"""Measures how fast `analyze` counts at local[2], and what its report takes for a small and a large number of rows.

The topic is on the local stack that `make run` starts, so the emulator takes part of the cores. The CPU is that of
Spark and its workers alone. Counting runs from planning to the files of hours in a warm session, and the best of
several rounds counts. A report runs in a process of its own, on files that this bench makes up: seven days, and for
each partition and hour two histograms and ten keys.
"""

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

from bench.loads.filling import fill_topic
from bench.loads.local_spark import local_session
from bench.meters.processes import cpu_seconds_used
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.spark.archive import MB, PARTITIONS
from penstock_service.adapters.aws import Storage
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.analysis.hourly import HOURS_SCHEMA, TOP_KEYS, count_hours, hour_name, write_hours
from penstock_spark.analysis.lag import LAG_SCHEMA
from penstock_spark.analysis.measure import HOUR_MS, TimeWindow, measured_records
from penstock_spark.analysis.report import render
from penstock_spark.analysis.summarize import summarize
from penstock_spark.result_store import FolderResultStore
from penstock_spark.storage import find_storage, open_instance

TOPIC = "bench-analyze"
HOURS = 7 * 24
FIRST_MS = 490_000 * HOUR_MS
TOPICS = 20
BUCKETS = 12  # of each histogram


@click.command(help=__doc__)
@reported("analyze")
@click.option("--mb", default=200, show_default=True, help="How many MB of values are counted.")
@click.option("--rounds", default=3, show_default=True, help="How often each is timed.")
@click.option("--rows", multiple=True, default=(10_000, 400_000), show_default=True, help="Rows of hours, repeatable.")
@click.option("--report-only", is_flag=True, help="Skip the counting, which needs a stack.")
def main(report: Report, mb: int, rounds: int, rows: Sequence[int], report_only: bool) -> None:
    if not report_only:
        report.show("counting", measure_counting(mb, rounds))
    report.show("report", [measure_report(each, rounds) for each in rows])


def measure_counting(mb: int, rounds: int) -> list[Row]:
    """Records and MB of values per second, for large and small values."""
    storage = find_storage()
    instance = open_instance(storage)
    spark = local_session()
    found: list[Row] = []
    try:
        for value_bytes in (1_024, 100):
            topic = create_topic(instance, TOPIC, PARTITIONS, {})
            try:
                records = fill_topic(instance, topic, value_bytes, mb * MB // value_bytes)
                taken = [count(spark, storage) for _ in range(rounds + 1)][1:]  # the first warms up
            finally:
                delete_topic(instance, TOPIC)
            seconds, cpu_seconds = map(min, zip(*taken, strict=True))
            found.append(
                {
                    "values": f"{value_bytes} B",
                    "records": records,
                    "records_per_s": round(records / seconds),
                    "mb_per_s": round(records * value_bytes / MB / seconds, 1),
                    "cpu_s_per_million_records": round(cpu_seconds / records * MB, 2),
                }
            )
    finally:
        spark.stop()
    return found


def count(spark: SparkSession, storage: Storage) -> tuple[float, float]:
    """Counts as the job does; the seconds and the CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        started, used = time.perf_counter(), cpu_seconds_used()
        window = TimeWindow(from_ms=0, to_ms=2**53)
        records = measured_records(spark, storage, window, [TOPIC]).persist(StorageLevel.MEMORY_AND_DISK)
        write_hours(count_hours(records), folder, storage, {TOPIC: PARTITIONS})
        records.unpersist()
        return time.perf_counter() - started, cpu_seconds_used() - used


def measure_report(rows: int, rounds: int) -> Row:
    """The seconds from the files to the page, and the peak memory of the process."""
    with tempfile.TemporaryDirectory() as folder:
        partitions = max(1, round(rows / HOURS / TOPICS))
        make_up(Path(folder), partitions)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as alone:
            found = [alone.submit(make_report, folder).result() for _ in range(rounds)]
    summed, summed_cpu, whole, whole_cpu, peak_mib = map(min, zip(*found, strict=True))
    return {
        "rows_of_hours": HOURS * TOPICS * partitions,
        "summary_s": round(summed, 2),
        "summary_cpu_s": round(summed_cpu, 2),
        "report_s": round(whole, 2),
        "report_cpu_s": round(whole_cpu, 2),
        "peak_mib": round(peak_mib),
    }


def make_report(folder: str) -> tuple[float, float, float, float, float]:
    """Seconds and CPU seconds of the summary, then of summary and page, and the peak memory of this process in MiB."""
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
    """Writes the files of hours of 20 topics with `partitions` partitions each."""
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
