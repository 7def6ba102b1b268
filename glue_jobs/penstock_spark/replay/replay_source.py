"""The source of a replay: windows of a table's offsets, in order, and the records of each window as Arrow.

A window holds the offsets that some groups of the table's plans have of one partition. Its content does not change
while a replay lasts, over any number of runs: it belongs to the commit, or snapshot, that the replay noted at first.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import OFFSET_MAX
from penstock_service.adapters.aws import Storage
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import commit_path
from penstock_spark.archive.iceberg_table import io_properties
from penstock_spark.archive.typed_columns import ARCHIVE_SCHEMA
from penstock_spark.arguments import parse_time
from penstock_spark.result_store import open_results

_COLUMNS = ["key", "value", "partition", "offset", "timestamp", "headers"]
_DAY_MS = 24 * 3_600_000
_COMMITS_CACHED = 64  # each lists a plan's files; a lane reads the plans in their order, so it needs few at once
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The records to replay: of `partitions` (None: all), within the timestamps `[from_ms, to_ms)`.

    `starts` and `ends` bound the offsets of a partition, `[start, end)`, if they name it.
    """

    partitions: tuple[int, ...] | None = None
    starts: tuple[tuple[int, int], ...] = ()
    ends: tuple[tuple[int, int], ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindow:
    """The offsets `[start_offset, end_offset)` of a partition.

    `groups` holds the numbers of the plans and groups that hold them.
    """

    partition: int
    start_offset: int
    end_offset: int
    groups: tuple[tuple[int, int], ...]
    stored_bytes: int


class RowSource(Protocol):
    """A table's records. The object can be pickled and sent to other processes."""

    def read(self, window: RowWindow, selection: Selection) -> pa.Table:
        """The window's selected records by offset.

        The columns are key, value, partition, offset, timestamp and headers.
        """


def windows_of(plans: Iterable[Plan], selection: Selection, window_bytes: int) -> dict[int, list[RowWindow]]:
    """The windows of each selected partition by offset, each of about `window_bytes`.

    `plans` must be in their order.
    """
    starts, ends = dict(selection.starts), dict(selection.ends)
    found: dict[int, list[RowWindow]] = {}
    for plan in plans:
        for group in plan.groups:
            share = group.stored_bytes // len(group.spans)
            for each in group.spans:
                start = max(each.start_offset, starts.get(each.partition, 0))
                end = min(each.end_offset, ends.get(each.partition, OFFSET_MAX))
                is_selected = selection.partitions is None or each.partition in selection.partitions
                if is_selected and start < end:
                    window = RowWindow(
                        partition=each.partition,
                        start_offset=start,
                        end_offset=end,
                        groups=((plan.number, group.number),),
                        stored_bytes=share,
                    )
                    _add(found.setdefault(each.partition, []), window, window_bytes)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetRows:
    """RowSource of a table without a catalog: the files that its commits name."""

    uri: str
    storage: Storage
    table: str

    def read(self, window: RowWindow, selection: Selection) -> pa.Table:
        """The window's selected records. One get for each plan's commit, the first time, and the reads of its files."""
        lake = open_results(self.uri, self.storage)
        filesystem, root = lake.filesystem()
        names = {f"{plan:012}-{group:05}.parquet" for plan, group in window.groups}
        paths = [
            root + path
            for plan in dict.fromkeys(plan for plan, _ in window.groups)
            for path in _committed_files(self.uri, self.storage, self.table, plan)
            if path.rpartition("/")[2] in names and _may_hold(path, selection)
        ]
        if not paths:
            return ARCHIVE_SCHEMA.empty_table().select(_COLUMNS)
        files = ds.dataset(paths, filesystem=filesystem, format="parquet", schema=ARCHIVE_SCHEMA)
        return files.to_table(columns=_COLUMNS, filter=_filter(window, selection)).sort_by("offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergRows:
    """RowSource of a catalog's table, as one snapshot has it.

    Records that another engine deleted from it are absent.
    """

    storage: Storage
    metadata_location: str
    snapshot_id: int

    def read(self, window: RowWindow, selection: Selection) -> pa.Table:
        """The window's selected records. One get of the table's metadata, and the reads of its manifests and files."""
        from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(self.metadata_location, io_properties(self.storage))
        condition: BooleanExpression = And(
            EqualTo("partition", window.partition),
            GreaterThanOrEqual("offset", window.start_offset),
            LessThan("offset", window.end_offset),
        )
        if selection.from_ms is not None:
            condition = And(condition, GreaterThanOrEqual("timestamp", _time(selection.from_ms)))
        if selection.to_ms is not None:
            condition = And(condition, LessThan("timestamp", _time(selection.to_ms)))
        scan = table.scan(row_filter=condition, selected_fields=tuple(_COLUMNS), snapshot_id=self.snapshot_id)
        return scan.to_arrow().select(_COLUMNS).sort_by("offset")


def _add(windows: list[RowWindow], window: RowWindow, window_bytes: int) -> None:
    last = windows[-1] if windows else None
    if last is None or last.stored_bytes + window.stored_bytes > window_bytes:
        windows.append(window)
        return
    windows[-1] = RowWindow(
        partition=last.partition,
        start_offset=last.start_offset,
        end_offset=window.end_offset,
        groups=(*last.groups, *window.groups),
        stored_bytes=last.stored_bytes + window.stored_bytes,
    )


@lru_cache(_COMMITS_CACHED)
def _committed_files(uri: str, storage: Storage, table: str, plan: int) -> Sequence[str]:
    found = open_results(uri, storage).get(commit_path(table, plan))
    if found is None:
        raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"commit {plan} of table {table!r} is gone")
    content: Mapping[str, Any] = json.loads(found)
    return list(content["files"])


def _may_hold(path: str, selection: Selection) -> bool:
    """The day in the path may have selected times. Days beyond the year 9999 always may."""
    day = path.rpartition("day=")[2].partition("/")[0]
    if len(day) != len("2026-11-21"):
        return True
    start_ms = parse_time(day)
    is_before = selection.to_ms is not None and start_ms >= selection.to_ms
    is_after = selection.from_ms is not None and start_ms + _DAY_MS <= selection.from_ms
    return not (is_before or is_after)


def _filter(window: RowWindow, selection: Selection) -> pc.Expression:
    offset = ds.field("offset")
    condition = (
        (ds.field("partition") == window.partition) & (offset >= window.start_offset) & (offset < window.end_offset)
    )
    for each in _times(selection):
        condition = condition & each
    return condition


def _times(selection: Selection) -> Iterator[pc.Expression]:
    kind = ARCHIVE_SCHEMA.field("timestamp").type
    if selection.from_ms is not None:
        yield ds.field("timestamp") >= pa.scalar(selection.from_ms * 1_000, pa.int64()).cast(kind)
    if selection.to_ms is not None:
        yield ds.field("timestamp") < pa.scalar(selection.to_ms * 1_000, pa.int64()).cast(kind)


def _time(timestamp_ms: int) -> str:
    return (_EPOCH + timestamp_ms * _MS).isoformat()
