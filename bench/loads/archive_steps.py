"""Archives and replays a topic as the jobs do, with Spark or in this process, so that a bench can time each step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from penstock_core.limits import MIB
from penstock_core.log.topic import Topic
from penstock_core.records.record_batch import Compression
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_spark.archive.archive_files import ArchivedGroup, archive_group
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import ParquetTable, TableKind, claim_table, find_plan
from penstock_spark.archive.archiving import Sizes, archive_topic
from penstock_spark.replay.replay_lane import Lane, LaneResult, ReplayTarget, replay_lane
from penstock_spark.replay.replay_source import ParquetRows, Selection, windows_of
from penstock_spark.replay.replaying import run_replay
from penstock_spark.result_store import ResultStore, open_results
from penstock_spark.storage import open_instance

SIZES = Sizes(group_bytes=64 * MIB, commit_bytes=8 * 1024 * MIB)
WINDOW_BYTES = 32 * MIB
ROUND_BYTES = 1024 * MIB


class Place(Protocol):
    """The place where the tasks of a step run: Spark, or this process."""

    @property
    def storage(self) -> Storage:
        """The stack's storage, which also tells how to open the folder of the table."""
        ...

    def instance(self) -> Instance:
        """The service, for the driver of a step."""
        ...

    def spread_groups(self, folder: str) -> Callable[[str, Plan], Sequence[ArchivedGroup]]:
        """Archives the groups of a plan."""
        ...

    def spread_lanes(self, rows: ParquetRows, target: ReplayTarget) -> Callable[[Sequence[Lane]], Sequence[LaneResult]]:
        """Replays lanes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """One Spark task for each group or lane. Each task opens an instance of its own, as the jobs do."""

    spark: SparkSession
    storage: Storage

    def instance(self) -> Instance:
        return open_instance(self.storage)

    def spread_groups(self, folder: str) -> Callable[[str, Plan], Sequence[ArchivedGroup]]:
        context, storage = self.spark.sparkContext, self.storage

        def spread(name: str, plan: Plan) -> Sequence[ArchivedGroup]:
            groups = context.parallelize(plan.groups, len(plan.groups))
            return groups.map(
                lambda each: archive_group(open_instance(storage), open_results(folder, storage), name, plan, each)
            ).collect()

        return spread

    def spread_lanes(self, rows: ParquetRows, target: ReplayTarget) -> Callable[[Sequence[Lane]], Sequence[LaneResult]]:
        context, storage = self.spark.sparkContext, self.storage

        def spread(lanes: Sequence[Lane]) -> Sequence[LaneResult]:
            tasks = context.parallelize(lanes, len(lanes))
            return tasks.map(
                lambda each: replay_lane(open_instance(storage), rows, Selection(), target, each)
            ).collect()

        return spread


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """This process, one group or lane after the other, on the instance that is given."""

    own: Instance
    storage: Storage

    def instance(self) -> Instance:
        return self.own

    def spread_groups(self, folder: str) -> Callable[[str, Plan], Sequence[ArchivedGroup]]:
        lake = open_results(folder, self.storage)
        return lambda name, plan: [archive_group(self.own, lake, name, plan, group) for group in plan.groups]

    def spread_lanes(self, rows: ParquetRows, target: ReplayTarget) -> Callable[[Sequence[Lane]], Sequence[LaneResult]]:
        return lambda lanes: [replay_lane(self.own, rows, Selection(), target, each) for each in lanes]


def archive(place: Place, topic: Topic, folder: str) -> None:
    """Archives the topic into a Parquet table in the folder."""
    lake = open_results(folder, place.storage)
    archive_topic(place.instance(), lake, topic, _table(lake, topic), place.spread_groups(folder), SIZES, _ignore)


def replay(place: Place, source: Topic, to: Topic, folder: str) -> None:
    """Replays the table of `source` into `to`, uncompressed, each partition into its own."""
    lake = open_results(folder, place.storage)
    table = _table(lake, source)
    plans = [find_plan(lake, table.name, number) for number in range(1, table.committed().number + 1)]
    rows = ParquetRows(uri=folder, storage=place.storage, table=table.name)
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
    windows = windows_of([plan for plan in plans if plan is not None], Selection(), WINDOW_BYTES)
    run_replay(windows, place.spread_lanes(rows, target), ROUND_BYTES, _ignore)


def table_folder(folder: str, topic: str) -> Path:
    """The folder of the Parquet files that `archive` writes."""
    return Path(folder) / topic.replace("-", "_") / "data"


def _table(lake: ResultStore, topic: Topic) -> ParquetTable:
    return ParquetTable(lake, claim_table(lake, topic, TableKind.PARQUET))


def _ignore(event: str, **facts: object) -> None:
    """Takes the events of a job, which a bench does not show."""
