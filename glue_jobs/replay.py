"""The job `replay`: records of an archived topic into a topic, the same or another, in their order, each once.

    replay.py --table orders --to orders-again [--from-time 2026-11-01 --to-time 2026-11-08] [--partitioning key] …

Keys, values, headers and timestamps stay as they are. Killed at any point and run again with the same options, it goes
on where it was. How: penstock_spark/replay_lane.py; docs/archive.md.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock_broker.adapters.aws import Storage
from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_topic_name
from penstock_core.limits import MIB
from penstock_core.record_batch import Compression
from penstock_core.topic import Topic
from penstock_spark.archive_plan import Plan
from penstock_spark.archive_table import LAKE, ArchiveTable, ParquetTable, TableKind, find_plan, kind_of_table
from penstock_spark.iceberg_table import IcebergTable, open_catalog
from penstock_spark.job import job_parser, parse_job, spark_session, tell
from penstock_spark.replay_lane import Lane, LaneDone, Target, replay_lane
from penstock_spark.replay_source import IcebergRows, ParquetRows, RowSource, Selection, Window, parse_time, windows_of
from penstock_spark.replaying import (
    Note,
    Replayed,
    Request,
    SpreadLanes,
    begin_replay,
    digest_of,
    finish_replay,
    is_done,
    run_replay,
)
from penstock_spark.result_store import ResultStore, open_results, results_uri
from penstock_spark.storage import open_broker

if TYPE_CHECKING:
    from pyspark import SparkContext

WINDOW_BYTES = 32 * MIB
ROUND_BYTES = 1024 * MIB


def main(argv: Sequence[str]) -> None:
    """One run. Raises what `begin_replay` and `replay_lane` raise; what is appended by then counts for the next."""
    parser = job_parser("replay", "Appends an archived topic's records to a topic, each once.")
    _add_options(parser)
    options, storage = parse_job(parser, argv)
    broker = open_broker(storage)
    uri = results_uri(options.output, storage, LAKE)
    lake = open_results(uri, storage)
    topic = broker.directory.look_up(options.to)
    table = _open_table(lake, storage, options.table)
    request = Request(
        table=options.table,
        topic=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        by_key=options.partitioning == "key",
        selection=_selection(options),
    )
    replay_id = options.replay_id or digest_of(request)
    commit = table.committed().number
    snapshot_id = table.pin(None)[1] if isinstance(table, IcebergTable) else None
    note = begin_replay(lake, replay_id, request, commit, snapshot_id, broker.clock.now_ms())
    if is_done(lake, options.table, replay_id):
        tell("result", job="replay", replay_id=replay_id, was_done_before=True, appended=0, repeated=0)
        return
    windows = windows_of(_plans(broker, lake, options.table, note), request.selection, WINDOW_BYTES)
    _check_partitions(topic, request, windows)
    tell("replaying", replay_id=replay_id, partitions=len(windows), commits=note.commit)
    with spark_session("replay") as spark:
        tasks = max(1, min(len(windows), spark.sparkContext.defaultParallelism))
        target = Target(
            replay_id=replay_id,
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            by_key=request.by_key,
            compression=Compression[options.compression.upper()],
            records_per_second=None if options.records_per_second is None else options.records_per_second / tasks,
            allows_expired=options.allow_expired,
        )
        rows = _rows(table, note, uri, storage)
        spread = _spread(spark.sparkContext, tasks, storage, rows, request.selection, target)
        total: Replayed = run_replay(windows, spread, options.round_bytes, tell)
    finish_replay(lake, options.table, replay_id, total)
    tell("result", job="replay", replay_id=replay_id, was_done_before=False, **total.facts())


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", required=True, type=_table, help="the archived table's name")
    parser.add_argument("--to", required=True, help="the topic to append to")
    parser.add_argument("--output", help="where the table lies: as it was given to archive")
    parser.add_argument("--partitions", type=_numbers, help="of the table, separated by commas; all if not given")
    parser.add_argument("--from-time", type=_time, help="the first timestamp: milliseconds, or as 2026-11-21T08:00:00Z")
    parser.add_argument("--to-time", type=_time, help="the timestamp behind the last")
    parser.add_argument("--starting-offsets", type=_offsets, default=(), help='by partition: {"0": 23}')
    parser.add_argument("--ending-offsets", type=_offsets, default=(), help="the offsets behind the last: as above")
    parser.add_argument(
        "--partitioning", choices=("keep", "key"), default="keep", help="to partitions of the same number, or by key"
    )
    parser.add_argument(
        "--compression", choices=[each.name.lower() for each in Compression], default="zstd", help="of batches"
    )
    parser.add_argument("--records-per-second", type=_rate, help="of all partitions together, at most, about")
    parser.add_argument("--allow-expired", action="store_true", help="also records that retention will remove at once")
    parser.add_argument("--replay-id", type=parse_topic_name, help="to do again what was done; drawn from the options")
    parser.add_argument("--round-bytes", type=_bytes, default=ROUND_BYTES, help="of segments between two lines, about")


def _open_table(lake: ResultStore, storage: Storage, name: str) -> ArchiveTable:
    if kind_of_table(lake, name) is TableKind.PARQUET:
        return ParquetTable(lake, name)
    if storage.catalog is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"table {name!r} is Iceberg's: give its --catalog, as it was given to archive"
        )
    catalog, namespace = open_catalog(storage.catalog, storage)
    return IcebergTable(catalog, namespace, lake, name)


def _plans(broker: Broker, lake: ResultStore, table: str, note: Note) -> list[Plan]:
    plans: list[Plan] = []
    for number, found in enumerate(
        broker.parallel.map(lambda each: find_plan(lake, table, each), range(1, note.commit + 1)), start=1
    ):
        if isinstance(found, PenstockError):
            raise found
        if found is None:
            raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"plan {number} of table {table!r} is gone")
        plans.append(found)
    return plans


def _check_partitions(topic: Topic, request: Request, windows: Mapping[int, Sequence[Window]]) -> None:
    highest = max(windows, default=0)
    if not request.by_key and highest >= topic.partitions:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name!r} has {topic.partitions} partitions, and the table has partition {highest}: "
            "choose some by --partitions, or spread them with --partitioning key",
        )


def _rows(table: ArchiveTable, note: Note, uri: str, storage: Storage) -> RowSource:
    if isinstance(table, IcebergTable):
        metadata_location, snapshot_id = table.pin(note.snapshot_id)
        return IcebergRows(storage=storage, metadata_location=metadata_location, snapshot_id=snapshot_id)
    return ParquetRows(uri=uri, storage=storage, table=table.name)


def _spread(
    context: "SparkContext", tasks: int, storage: Storage, rows: RowSource, selection: Selection, target: Target
) -> SpreadLanes:
    def spread(lanes: Sequence[Lane]) -> Sequence[LaneDone]:
        done = context.parallelize(lanes, tasks).map(
            lambda lane: replay_lane(open_broker(storage), rows, selection, target, lane)
        )
        return done.collect()

    return spread


def _selection(options: argparse.Namespace) -> Selection:
    return Selection(
        partitions=options.partitions,
        starts=options.starting_offsets,
        ends=options.ending_offsets,
        from_ms=options.from_time,
        to_ms=options.to_time,
    )


def _table(text: str) -> str:
    if not text or not all(each.isascii() and (each.isalnum() or each == "_") for each in text):
        raise argparse.ArgumentTypeError(f"{text!r} is no table: its name has letters, digits and _ only")
    return text


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except PenstockError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({_number(part, 0, "partition") for part in text.split(",")}))


def _offsets(text: str) -> tuple[tuple[int, int], ...]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'{text!r}: give offsets by partition as JSON, {{"0": 23}}')
    return tuple(
        sorted((_number(name, 0, "partition"), _number(str(each), 0, "offset")) for name, each in found.items())
    )


def _rate(text: str) -> float:
    return float(_number(text, 1, "number of records"))


def _bytes(text: str) -> int:
    return _number(text, 1, "number of bytes")


def _number(text: str, low: int, what: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= low):
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}")
    return int(text)


if __name__ == "__main__":
    main(sys.argv[1:])
