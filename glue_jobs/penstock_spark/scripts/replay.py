"""The job `replay`: appends the records of an archived topic to the same or another topic, in order, each once.

    replay.py --table orders --to orders-again [--from-time 2026-11-01 --to-time 2026-11-08] [--partitioning key] …

Keys, values, headers and timestamps stay as they are. After a kill at any point, a run with the same options continues:
penstock_spark/replay/replay_lane.py argues why. docs/how-to/archive.md shows the use.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_topic_name
from penstock_core.limits import MIB
from penstock_core.log.topic import Topic
from penstock_core.records.record_batch import Compression
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import LAKE, ArchiveTable, ParquetTable, TableKind, find_plan, kind_of_table
from penstock_spark.archive.iceberg_table import IcebergTable, open_catalog
from penstock_spark.arguments import (
    byte_count,
    partition_list,
    partition_offsets,
    record_rate,
    table_name,
    time_ms,
)
from penstock_spark.job import job_parser, log_event, parse_job, spark_session
from penstock_spark.replay.replay_lane import Lane, LaneResult, ReplayTarget, replay_lane
from penstock_spark.replay.replay_source import (
    IcebergRows,
    ParquetRows,
    RowSource,
    RowWindow,
    Selection,
    windows_of,
)
from penstock_spark.replay.replaying import (
    ReplayNote,
    ReplayRequest,
    ReplayResult,
    begin_replay,
    default_id,
    finish_replay,
    is_done,
    placements_of,
    run_replay,
    turned,
)
from penstock_spark.result_store import ResultStore, open_results, results_uri
from penstock_spark.storage import open_instance

if TYPE_CHECKING:
    from pyspark import SparkContext

WINDOW_BYTES = 32 * MIB  # one read of a task, in memory
ROUND_BYTES = 1024 * MIB  # a round takes about a minute, after which the job prints its progress


def main(argv: Sequence[str]) -> None:
    """Run once.

    Raises the errors of `begin_replay` and `replay_lane`. The next run counts the records appended until then.
    """
    parser = job_parser("replay", "Appends an archived topic's records to a topic, each once.")
    _add_options(parser)
    options, storage = parse_job(parser, argv)
    instance = open_instance(storage)
    uri = results_uri(options.output, storage, LAKE)
    lake = open_results(uri, storage)
    topic = instance.topic_cache.read_through(options.to)
    table = _open_table(lake, storage, options.table)
    request = ReplayRequest(
        table=options.table,
        topic=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.writable_partitions,
        first=topic.first_writable,
        by_key=options.partitioning == "key",
        selection=_selection(options),
    )
    replay_id = options.replay_id or default_id(lake, request)
    commit = table.committed().number
    snapshot_id = table.pin(None)[1] if isinstance(table, IcebergTable) else None
    note = begin_replay(lake, replay_id, request, commit, snapshot_id, instance.clock.now_ms())
    if is_done(lake, options.table, replay_id):
        log_event("result", job="replay", replay_id=replay_id, was_done_before=True, appended=0, repeated=0)
        return
    *earlier, _ = placements_of(lake, replay_id, request)
    windows = windows_of(_plans(instance, lake, options.table, note), request.selection, WINDOW_BYTES)
    if not earlier:
        _check_partitions(topic, request, windows)
    log_event("replaying", replay_id=replay_id, partitions=len(windows), commits=note.commit)
    with spark_session("replay") as spark:
        tasks = max(1, min(len(windows), spark.sparkContext.defaultParallelism))
        target = ReplayTarget(
            replay_id=replay_id,
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=request.partitions,
            first=request.first,
            earlier=tuple(earlier),
            by_key=request.by_key,
            compression=Compression[options.compression.upper()],
            records_per_second=None if options.records_per_second is None else options.records_per_second / tasks,
            started_ms=note.started_ms,
        )
        rows = _rows(table, note, uri, storage)

        def run_lanes(lanes: Sequence[Lane]) -> Sequence[LaneResult]:
            return _run_lanes(spark.sparkContext, tasks, storage, (rows, request.selection, target), lanes)

        def turn() -> None:
            nonlocal target
            target = turned(instance, lake, request, target)

        total: ReplayResult = run_replay(windows, run_lanes, options.round_bytes, log_event, turn)
    finish_replay(lake, options.table, replay_id, total)
    log_event("result", job="replay", replay_id=replay_id, was_done_before=False, **total.facts())


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", required=True, type=table_name, help="the archived table's name")
    parser.add_argument("--to", required=True, help="the topic to append to")
    parser.add_argument("--output", help="the place of the tables, as given to archive")
    parser.add_argument(
        "--partitions", type=partition_list, help="the table's partitions, with commas between them (default: all)"
    )
    parser.add_argument(
        "--from-time", type=time_ms, help="the first timestamp: milliseconds, or such as 2026-11-21T08:00:00Z"
    )
    parser.add_argument("--to-time", type=time_ms, help="the timestamp behind the last")
    parser.add_argument(
        "--starting-offsets", type=partition_offsets, default=(), help='the first offsets by partition: {"0": 23}'
    )
    parser.add_argument(
        "--ending-offsets", type=partition_offsets, default=(), help="the offsets behind the last ones, by partition"
    )
    parser.add_argument(
        "--partitioning",
        choices=("keep", "key"),
        default="keep",
        help="keep the partition's number, or choose it by key",
    )
    parser.add_argument(
        "--compression",
        choices=[each.name.lower() for each in Compression],
        default="zstd",
        help="of the batches (default zstd)",
    )
    parser.add_argument("--records-per-second", type=record_rate, help="a bound for all partitions together, about")
    parser.add_argument(
        "--replay-id", type=parse_topic_name, help="to send the same records again (default: a digest of the options)"
    )
    parser.add_argument(
        "--round-bytes", type=byte_count, default=ROUND_BYTES, help="bytes of segments between two printed lines, about"
    )


def _open_table(lake: ResultStore, storage: Storage, name: str) -> ArchiveTable:
    if kind_of_table(lake, name) is TableKind.PARQUET:
        return ParquetTable(lake, name)
    if storage.catalog is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"table {name!r} is Iceberg's: give its --catalog, as it was given to archive"
        )
    catalog, namespace = open_catalog(storage.catalog, storage)
    return IcebergTable(catalog, namespace, lake, name)


def _plans(instance: Instance, lake: ResultStore, table: str, note: ReplayNote) -> list[Plan]:
    plans: list[Plan] = []
    for number, found in enumerate(
        instance.executor.map(lambda each: find_plan(lake, table, each), range(1, note.commit + 1)), start=1
    ):
        if isinstance(found, PenstockError):
            raise found
        if found is None:
            raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"plan {number} of table {table!r} is gone")
        plans.append(found)
    return plans


def _check_partitions(topic: Topic, request: ReplayRequest, windows: Mapping[int, Sequence[RowWindow]]) -> None:
    highest = max(windows, default=0)
    if not request.by_key and highest >= topic.writable_partitions:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name!r} has {topic.writable_partitions} writable partitions, and the table has partition "
            f"{highest}: choose some by --partitions, or spread them with --partitioning key",
        )


def _rows(table: ArchiveTable, note: ReplayNote, uri: str, storage: Storage) -> RowSource:
    if isinstance(table, IcebergTable):
        metadata_location, snapshot_id = table.pin(note.snapshot_id)
        return IcebergRows(storage=storage, metadata_location=metadata_location, snapshot_id=snapshot_id)
    return ParquetRows(uri=uri, storage=storage, table=table.name)


def _run_lanes(
    context: "SparkContext",
    tasks: int,
    storage: Storage,
    fixed: tuple[RowSource, Selection, ReplayTarget],
    lanes: Sequence[Lane],
) -> Sequence[LaneResult]:
    rows, selection, target = fixed
    done = context.parallelize(lanes, tasks).map(
        lambda lane: replay_lane(open_instance(storage), rows, selection, target, lane)
    )
    return done.collect()


def _selection(options: argparse.Namespace) -> Selection:
    return Selection(
        partitions=options.partitions,
        starts=options.starting_offsets,
        ends=options.ending_offsets,
        from_ms=options.from_time,
        to_ms=options.to_time,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
