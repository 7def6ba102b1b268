"""One run of a replay in this process, and the rows that tests look for."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from penstock_core.records.codec import decode
from penstock_core.records.record_batch import Compression
from penstock_service.instance.instance import Instance
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import find_plan
from penstock_spark.archive.iceberg_table import IcebergTable
from penstock_spark.replay.replay_lane import LaneResult, ReplayTarget, replay_lane
from penstock_spark.replay.replay_source import (
    IcebergRows,
    ParquetRows,
    RowSource,
    Selection,
    windows_of,
)
from penstock_spark.replay.replaying import (
    ReplayRequest,
    ReplayResult,
    begin_replay,
    placements_of,
    run_replay,
    turned,
)
from tests.glue_jobs.archived_topic import DAY_MS, START_MS, ArchivedTopic, Row
from tests.glue_jobs.storages import SOME_STORAGE
from tests.support.service import (
    ask,
    head_of,
)

NOW_MS = START_MS + 10 * DAY_MS
ALL = Selection()


def replay(
    archived: ArchivedTopic,
    instance: Instance | None = None,
    *,
    to: str = "copy",
    selection: Selection = ALL,
    by_key: bool = False,
    replay_id: str = "first",
    **changes: Any,
) -> ReplayResult:
    """One run of the replay, as the job does it."""
    instance = archived.instance if instance is None else instance
    topic = instance.topic_cache.read_through(to)
    table = archived.table()
    snapshot_id = table.pin(None)[1] if isinstance(table, IcebergTable) else None
    request = ReplayRequest(
        table=table.name,
        topic=to,
        topic_id=topic.topic_id,
        partitions=topic.writable_partitions,
        first=topic.first_writable,
        by_key=by_key,
        selection=selection,
    )
    note = begin_replay(
        archived.lake, replay_id, request, table.committed().number, snapshot_id, int(instance.clock.now_ms())
    )
    rows: RowSource = ParquetRows(uri=str(archived.folder / "lake"), storage=SOME_STORAGE, table=table.name)
    if isinstance(table, IcebergTable):
        location, pinned = table.pin(note.snapshot_id)
        rows = IcebergRows(storage=SOME_STORAGE, metadata_location=location, snapshot_id=pinned)
    *earlier, _ = placements_of(archived.lake, replay_id, request)
    target = ReplayTarget(
        replay_id=replay_id,
        topic=to,
        topic_id=topic.topic_id,
        partitions=topic.writable_partitions,
        first=topic.first_writable,
        earlier=tuple(earlier),
        by_key=by_key,
        compression=Compression.NONE,
        records_per_second=None,
        started_ms=note.started_ms,
    )

    def run_lanes(lanes: Any) -> list[LaneResult]:
        return [replay_lane(instance, rows, selection, replace(target, **changes), lane) for lane in lanes]

    def turn() -> None:
        nonlocal target
        target = turned(instance, archived.lake, request, target)

    windows = windows_of(plans(archived, note.commit), selection, 500)
    return run_replay(windows, run_lanes, 2_000, lambda *_, **__: None, turn)


def plans(archived: ArchivedTopic, commit: int) -> Iterator[Plan]:
    table = archived.table().name
    for number in range(1, commit + 1):
        plan = find_plan(archived.lake, table, number)
        assert plan is not None
        yield plan


def rows_in(instance: Instance, topic: str, partition: int) -> list[tuple[Any, ...]]:
    """Key, value, timestamp and headers of the partition's records, by offset."""
    found: list[tuple[Any, ...]] = []
    offset = 0
    while offset < head_of(instance, topic, partition).high_watermark:
        fetched = ask(instance, topic, offset, partition=partition)
        found += [
            (each.key, each.value, each.timestamp, tuple(each.headers))
            for each in decode(fetched.data)
            if each.offset >= offset
        ]
        offset = fetched.next_offset
    return found


def content(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(key, value, timestamp_ms, tuple(headers)) for _, _, key, value, timestamp_ms, headers in rows]


def expected(archived: ArchivedTopic, partition: int) -> list[tuple[Any, ...]]:
    return content([row for row in archived.expected() if row[0] == partition])
