"""Measures archiving and replaying at local[2].

The topic is on the local stack that `make run` starts, so the emulator takes part of the cores. The table is in a
folder. A smaller archive warms the session. Each group and each lane is one Spark task, as in the jobs.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
from pyspark.sql import SparkSession

from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.spark.local_spark import fill_topic, local_session
from penstock_core.limits import MIB
from penstock_core.log.topic import Topic
from penstock_core.records.record_batch import Compression
from penstock_service.adapters.aws import Storage
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.archive.archive_files import ArchivedGroup, archive_group
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import ParquetTable, TableKind, claim_table, find_plan
from penstock_spark.archive.archiving import Sizes, archive_topic
from penstock_spark.replay.replay_lane import Lane, LaneResult, ReplayTarget, replay_lane
from penstock_spark.replay.replay_source import ParquetRows, Selection, windows_of
from penstock_spark.replay.replaying import run_replay
from penstock_spark.result_store import ResultStore, open_results
from penstock_spark.storage import find_storage, open_instance

MB = 1_000_000
PARTITIONS = 4
TOPIC, COPY = "bench-archive", "bench-archive-copy"
SIZES = Sizes(group_bytes=64 * MIB, commit_bytes=8 * 1024 * MIB)
WINDOW_BYTES = 32 * MIB
ROUND_BYTES = 1024 * MIB


@click.command(help=__doc__)
@reported("archive")
@click.option("--mb", default=200, show_default=True, help="How many MB of values are archived.")
def main(report: Report, mb: int) -> None:
    spark = local_session()
    place = Place(spark=spark, storage=find_storage())
    try:
        rows = [row for size in (1_024, 100) for row in measure(place, size, mb * MB // size)]
    finally:
        spark.stop()
    report.show("steps", rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Spark, and the storage of the stack. Each task opens an instance of its own."""

    spark: SparkSession
    storage: Storage

    def archive(self, topic: Topic, folder: str) -> None:
        """Archives the topic into a Parquet table in the folder."""
        context, storage = self.spark.sparkContext, self.storage
        lake = open_results(folder, storage)

        def spread(name: str, plan: Plan) -> Sequence[ArchivedGroup]:
            groups = context.parallelize(plan.groups, len(plan.groups))
            return groups.map(
                lambda each: archive_group(open_instance(storage), open_results(folder, storage), name, plan, each)
            ).collect()

        archive_topic(open_instance(storage), lake, topic, _table(lake, topic), spread, SIZES, _ignore)

    def replay(self, source: Topic, to: Topic, folder: str) -> None:
        """Replays the table of `source` into `to`, uncompressed, each partition into its own."""
        context, storage = self.spark.sparkContext, self.storage
        lake = open_results(folder, storage)
        table = _table(lake, source)
        plans = [find_plan(lake, table.name, number) for number in range(1, table.committed().number + 1)]
        rows = ParquetRows(uri=folder, storage=storage, table=table.name)
        target = ReplayTarget(
            replay_id=f"bench-{to.topic_id}",
            topic=to.name,
            topic_id=to.topic_id,
            partitions=to.partitions,
            by_key=False,
            compression=Compression.NONE,
            records_per_second=None,
            started_ms=0,
        )

        def spread(lanes: Sequence[Lane]) -> Sequence[LaneResult]:
            tasks = context.parallelize(lanes, len(lanes))
            return tasks.map(
                lambda each: replay_lane(open_instance(storage), rows, Selection(), target, each)
            ).collect()

        windows = windows_of([plan for plan in plans if plan is not None], Selection(), WINDOW_BYTES)
        run_replay(windows, spread, ROUND_BYTES, _ignore)


def measure(place: Place, value_bytes: int, count: int) -> list[Row]:
    """MB of values and records per second of each step."""
    instance = open_instance(place.storage)
    topic, copy = (create_topic(instance, name, PARTITIONS, {}) for name in (TOPIC, COPY))
    try:
        with tempfile.TemporaryDirectory() as folder:
            records = fill_topic(instance, topic, value_bytes, count // 10)
            place.archive(topic, f"{folder}/warm")
            records += fill_topic(instance, topic, value_bytes, count)
            seconds = {
                "archive": _timed(lambda: place.archive(topic, f"{folder}/lake")),
                "replay": _timed(lambda: place.replay(topic, copy, f"{folder}/lake")),
            }
    finally:
        for name in (TOPIC, COPY):
            delete_topic(instance, name)
    return [
        {
            "values": f"{value_bytes} B",
            "step": step,
            "mb_per_s": round(records * value_bytes / MB / taken, 1),
            "records_per_s": round(records / taken),
        }
        for step, taken in seconds.items()
    ]


def _timed(step: Callable[[], object]) -> float:
    """The seconds that the step takes."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def _table(lake: ResultStore, topic: Topic) -> ParquetTable:
    return ParquetTable(lake, claim_table(lake, topic, TableKind.PARQUET))


def _ignore(event: str, **facts: object) -> None:
    """Takes the events of a job, which a bench does not show."""


if __name__ == "__main__":
    main()
