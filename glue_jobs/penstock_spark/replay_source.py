"""What a replay reads: windows of a table's offsets, in order, and the records in each as Arrow.

A window is what some groups of the table's plans hold of one partition. What is read of it does not change while a
replay lasts, over any number of runs: it is of a commit, or of a snapshot, that the replay noted when it began.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock_broker.adapters.aws import Storage
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import OFFSET_MAX
from penstock_spark.archive_plan import Plan
from penstock_spark.archive_schema import ARCHIVE_SCHEMA
from penstock_spark.archive_table import commit_path
from penstock_spark.iceberg_table import io_properties
from penstock_spark.result_store import open_results

_COLUMNS = ["key", "value", "partition", "offset", "timestamp", "headers"]
_DAY_MS = 24 * 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records: of `partitions` (None: all), with offsets of `[starts, ends)` by partition where they are given,
    and timestamps of `[from_ms, to_ms)`."""

    partitions: tuple[int, ...] | None = None
    starts: tuple[tuple[int, int], ...] = ()
    ends: tuple[tuple[int, int], ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The offsets `[start_offset, end_offset)` of a partition, and the plans and groups that hold them."""

    partition: int
    start_offset: int
    end_offset: int
    groups: tuple[tuple[int, int], ...]
    stored_bytes: int


class RowSource(Protocol):
    """A table's records; a value that can be sent to other processes."""

    def read(self, window: Window, selection: Selection) -> pa.Table:
        """The window's selected records by offset, in the columns key, value, partition, offset, timestamp and
        headers."""


def windows_of(plans: Iterable[Plan], selection: Selection, window_bytes: int) -> dict[int, list[Window]]:
    """For each selected partition its windows by offset, each of about `window_bytes`, by the plans in their order."""
    starts, ends = dict(selection.starts), dict(selection.ends)
    found: dict[int, list[Window]] = {}
    for plan in plans:
        for group in plan.groups:
            share = group.stored_bytes // len(group.spans)
            for each in group.spans:
                start = max(each.start_offset, starts.get(each.partition, 0))
                end = min(each.end_offset, ends.get(each.partition, OFFSET_MAX))
                is_selected = selection.partitions is None or each.partition in selection.partitions
                if is_selected and start < end:
                    window = Window(
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
    """RowSource of a table without catalog: the files that its commits name."""

    uri: str
    storage: Storage
    table: str

    def read(self, window: Window, selection: Selection) -> pa.Table:
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
    """RowSource of a catalog's table, as one snapshot has it; what others have deleted of it is not there."""

    storage: Storage
    metadata_location: str
    snapshot_id: int

    def read(self, window: Window, selection: Selection) -> pa.Table:
        from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(self.metadata_location, io_properties(self.storage))
        wanted: BooleanExpression = And(
            EqualTo("partition", window.partition),
            GreaterThanOrEqual("offset", window.start_offset),
            LessThan("offset", window.end_offset),
        )
        if selection.from_ms is not None:
            wanted = And(wanted, GreaterThanOrEqual("timestamp", _time(selection.from_ms)))
        if selection.to_ms is not None:
            wanted = And(wanted, LessThan("timestamp", _time(selection.to_ms)))
        scan = table.scan(row_filter=wanted, selected_fields=tuple(_COLUMNS), snapshot_id=self.snapshot_id)
        return scan.to_arrow().select(_COLUMNS).sort_by("offset")


def parse_time(text: str) -> int:
    """Milliseconds since 1970: a number of them, or a time as in `2026-11-21T08:00:00Z`, which is UTC unless it says
    otherwise. Raises INVALID_REQUEST."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{text!r} is no time: give milliseconds since 1970, or a time such as 2026-11-21T08:00:00Z",
        ) from error
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MS


def _add(windows: list[Window], window: Window, window_bytes: int) -> None:
    last = windows[-1] if windows else None
    if last is None or last.stored_bytes + window.stored_bytes > window_bytes:
        windows.append(window)
        return
    windows[-1] = Window(
        partition=last.partition,
        start_offset=last.start_offset,
        end_offset=window.end_offset,
        groups=(*last.groups, *window.groups),
        stored_bytes=last.stored_bytes + window.stored_bytes,
    )


@cache
def _committed_files(uri: str, storage: Storage, table: str, plan: int) -> Sequence[str]:
    found = open_results(uri, storage).get(commit_path(table, plan))
    if found is None:
        raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"commit {plan} of table {table!r} is gone")
    content: Mapping[str, Any] = json.loads(found)
    return list(content["files"])


def _may_hold(path: str, selection: Selection) -> bool:
    """Whether the day in the path has times that are selected; days beyond the year 9999 always may."""
    day = path.rpartition("day=")[2].partition("/")[0]
    if len(day) != len("2026-11-21"):
        return True
    start_ms = parse_time(day)
    is_before = selection.to_ms is not None and start_ms >= selection.to_ms
    is_after = selection.from_ms is not None and start_ms + _DAY_MS <= selection.from_ms
    return not (is_before or is_after)


def _filter(window: Window, selection: Selection) -> pc.Expression:
    offset = ds.field("offset")
    wanted = (
        (ds.field("partition") == window.partition) & (offset >= window.start_offset) & (offset < window.end_offset)
    )
    for each in _times(selection):
        wanted = wanted & each
    return wanted


def _times(selection: Selection) -> Iterator[pc.Expression]:
    kind = ARCHIVE_SCHEMA.field("timestamp").type
    if selection.from_ms is not None:
        yield ds.field("timestamp") >= pa.scalar(selection.from_ms * 1_000, pa.int64()).cast(kind)
    if selection.to_ms is not None:
        yield ds.field("timestamp") < pa.scalar(selection.to_ms * 1_000, pa.int64()).cast(kind)


def _time(timestamp_ms: int) -> str:
    return (_EPOCH + timestamp_ms * _MS).isoformat()
