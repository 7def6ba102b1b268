"""What archiving and replaying do a second at local[2], and how fast a table is read beside Parquet that Spark wrote.

The topic is on the local stack that is near (`make run`), so its emulator takes part of the cores; the table is in a
folder. Each step is timed once the session is warm; reads, of every column into Spark's `noop`, the best of several.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import penstock_spark
from bench.local_spark import local_session
from penstock_broker.adapters.aws import Storage
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.errors import PenstockError
from penstock_core.limits import MIB
from penstock_core.quorum import Acks
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, encode
from penstock_core.topic import Topic
from penstock_spark.archive_files import ArchivedGroup, archive_group
from penstock_spark.archive_plan import Plan
from penstock_spark.archive_table import ParquetTable, TableKind, claim_table, find_plan
from penstock_spark.archiving import Sizes, archive_topic
from penstock_spark.replay_lane import Lane, LaneDone, Target, replay_lane
from penstock_spark.replay_source import ParquetRows, Selection, windows_of
from penstock_spark.replaying import run_replay
from penstock_spark.result_store import open_results
from penstock_spark.storage import find_storage, open_broker

MB = 1_000_000
PARTITIONS = 4
BATCH_BYTES = 256 * 1024
TOPIC, COPY = "bench-archive", "bench-archive-copy"
SIZES = Sizes(group_bytes=64 * MIB, commit_bytes=8 * 1024 * MIB)
Row = dict[str, Any]


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--mb", default=200, show_default=True, help="How many MB of values are archived.")
@click.option("--rounds", default=3, show_default=True, help="How often each read is timed.")
def main(as_json: bool, mb: int, rounds: int) -> None:
    storage = find_storage()
    broker = open_broker(storage)
    spark = local_session()
    report: dict[str, list[Row]] = {}
    try:
        for value_bytes in (1_024, 100):
            topic, copy = (create_topic(broker, name, PARTITIONS, {}) for name in (TOPIC, COPY))
            try:
                count = mb * MB // value_bytes
                report[f"{value_bytes} B"] = measure(spark, storage, topic, copy, value_bytes, count, rounds)
            finally:
                for name in (TOPIC, COPY):
                    delete_topic(broker, name)
    finally:
        spark.stop()
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for title, rows in report.items():
        Console().print(to_table(title, rows))


def measure(
    spark: SparkSession, storage: Storage, topic: Topic, copy: Topic, value_bytes: int, count: int, rounds: int
) -> list[Row]:
    """MB of values and records a second of each step."""
    broker = open_broker(storage)
    with tempfile.TemporaryDirectory() as name:
        fill(broker, topic, value_bytes, count // 10)
        archive(spark, storage, topic, f"{name}/warm")
        records = fill(broker, topic, value_bytes, count) + count // 10
        seconds = {"archive": timed(lambda: archive(spark, storage, topic, f"{name}/lake"))}
        seconds["replay"] = timed(lambda: replay(spark, storage, topic, copy, f"{name}/lake"))
        table = f"{name}/lake/{TOPIC.replace('-', '_')}/data"
        columns = [each for each in spark.read.parquet(table).columns if each != "day"]
        own = f"{name}/by-spark"
        spark.read.parquet(table).select(*columns).write.option("compression", "zstd").parquet(own)
        penstock_spark.register(spark)
        ways: dict[str, Callable[[], DataFrame]] = {
            "read the table (spark.read.parquet)": lambda: spark.read.parquet(table).select(*columns),
            "read Parquet that Spark wrote": lambda: spark.read.parquet(own).select(*columns),
        }
        for _ in range(rounds):
            for way, frame in ways.items():
                taken = timed(lambda frame=frame: drain(frame()))  # type: ignore[misc]
                seconds[way] = min(taken, seconds.get(way, taken))
        assert spark.read.parquet(table).count() >= count
    return [
        {"step": step, "MB/s": round(records * value_bytes / MB / taken, 1), "records/s": round(records / taken)}
        for step, taken in seconds.items()
    ]


def fill(broker: Broker, topic: Topic, value_bytes: int, count: int) -> int:
    """Appends of about a MiB to each partition in turn; how many records."""
    chance = random.Random(1)
    now_ms = broker.clock.now_ms()
    per_batch = max(1, min(BATCH_BYTES // value_bytes, count // 4))
    appended = 0
    while appended < count:
        batches = [
            encode(
                [
                    NewRecord(now_ms, b"key-%d" % (each % 1_000), chance.randbytes(value_bytes))
                    for each in range(per_batch)
                ]
            )
            for _ in range(4)
        ]
        number = appended // (4 * per_batch) % PARTITIONS
        entry = ProduceEntry(topic=topic.name, partition=number, data=b"".join(batches))
        [result] = produce(broker, [entry], Acks.QUORUM)
        if isinstance(result, PenstockError):
            raise result
        appended += 4 * per_batch
    return appended


def archive(spark: SparkSession, storage: Storage, topic: Topic, folder: str) -> None:
    """As the job does it."""
    lake = open_results(folder, storage)
    table = ParquetTable(lake, claim_table(lake, topic, TableKind.PARQUET))

    def spread(name: str, plan: Plan) -> Sequence[ArchivedGroup]:
        groups = spark.sparkContext.parallelize(plan.groups, len(plan.groups))
        return groups.map(
            lambda each: archive_group(open_broker(storage), open_results(folder, storage), name, plan, each)
        ).collect()

    archive_topic(open_broker(storage), lake, topic, table, spread, SIZES, _tell_nobody)


def replay(spark: SparkSession, storage: Storage, topic: Topic, copy: Topic, folder: str) -> None:
    """As the job does it."""
    lake = open_results(folder, storage)
    table = ParquetTable(lake, claim_table(lake, topic, TableKind.PARQUET))
    plans = [find_plan(lake, table.name, each) for each in range(1, table.committed().number + 1)]
    rows, selection = ParquetRows(uri=folder, storage=storage, table=table.name), Selection()
    target = Target(
        replay_id=f"bench-{Path(folder).parent.name}",
        topic=copy.name,
        topic_id=copy.topic_id,
        partitions=copy.partitions,
        by_key=False,
        compression=Compression.NONE,
        records_per_second=None,
        allows_expired=False,
    )

    def spread(lanes: Sequence[Lane]) -> Sequence[LaneDone]:
        tasks = spark.sparkContext.parallelize(lanes, len(lanes))
        return tasks.map(lambda each: replay_lane(open_broker(storage), rows, selection, target, each)).collect()

    windows = windows_of([each for each in plans if each is not None], selection, 32 * MIB)
    run_replay(windows, spread, 1024 * MIB, _tell_nobody)


def drain(frame: DataFrame) -> None:
    """Reads every column into nothing."""
    frame.write.format("noop").mode("overwrite").save()


def timed(step: Callable[[], object]) -> float:
    """Its seconds."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def to_table(title: str, rows: list[Row]) -> Table:
    """The figures as they are printed."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(f"{value:,}" if not isinstance(value, str) else value for value in row.values()))
    return table


def _tell_nobody(event: str, **facts: Any) -> None:  # noqa: ARG001
    return


if __name__ == "__main__":
    main()
