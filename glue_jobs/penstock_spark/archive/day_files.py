"""Splits records by the day of their timestamp (UTC), and by chosen columns, into Parquet files on local disk.

"Day" below means a day with one value of each chosen column. Records of one day keep their order. The memory of waiting
records is bounded. Once 32 MiB of a day's records wait, they are written as a row group. Once 64 MiB of all days wait,
the largest day's records are written.

The open files are bounded, too: a backfill may have records of thousands of days. The day that was written longest ago
closes its file. If more of its records come, they go into a further part, and the end joins a day's parts.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_spark.archive.typed_columns import FILE_SCHEMA, Typing, parse_partition

ROW_GROUP_BYTES = 32 * MIB
WAITING_BYTES_MAX = 64 * MIB
OPEN_FILES_MAX = 100
COMPRESSION = "zstd"

_BATCH_BYTES = 2_000  # about what a batch takes next to its columns: many days may have one record each
_DAY_US = 24 * 3_600 * 1_000_000
_DIGEST_LENGTH = 16
_Key = tuple[Any, ...]  # the day's number, and the value of each chosen column
_FEW_VALUES = ["key", "topic", "partition", "timestampType"]  # these columns repeat values: a dictionary saves bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFile:
    """A finished file. `day` has the form `2026-11-21`, with `/` and a digest of the values of chosen columns."""

    day: str
    path: Path
    records: int


def data_path(table: str, day: str, name: str) -> str:
    """The path of a table's file of a day, as `DayFile` has it. `name` has no ending."""
    folder, _, values = day.partition("/")
    return f"{table}/data/day={folder}/{name}{values and '-'}{values}.parquet"


@dataclass(slots=True)
class _Day:
    """The records of one day that wait, and the parts that hold the others. `writer` is of the last part, if open."""

    parts: list[Path] = field(default_factory=list)
    writer: pq.ParquetWriter | None = None
    records: int = 0
    waiting_bytes: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)

    def finish_part(self) -> None:
        """Close the open part, if there is one."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class DayFiles:
    """The files of one group."""

    def __init__(self, folder: Path, typing: Typing | None = None, *, values_max: int | None = None) -> None:
        """`values_max` bounds the values of the chosen columns: `add` raises INVALID_CONFIG beyond."""
        self._folder = folder
        self._values_max = values_max
        self._values: set[_Key] = set()
        self._schema = FILE_SCHEMA if typing is None else typing.file_schema()
        self._partition_by = () if typing is None else typing.partition_by
        self._days: dict[_Key, _Day] = {}
        self._open: dict[_Key, _Day] = {}  # the day that was written longest ago comes first
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records. Writes row groups when the waiting records exceed the bounds."""
        times: np.ndarray[tuple[int], np.dtype[np.int64]] = np.asarray(batch.column("timestamp").cast(pa.int64()))
        days = times // _DAY_US
        codes = np.unique(days, return_inverse=True)[1]
        columns = [_partition(batch, name) for name in self._partition_by]
        for column in columns:
            values = column.dictionary_encode(null_encoding="encode")
            # The numbers stay below the rows' count, so that no product of them overflows.
            codes = np.unique(codes * (len(values.dictionary) + 1) + np.asarray(values.indices), return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            key = (int(days[rows[0]]), *(column[int(rows[0])].as_py() for column in columns))
            self._add(key, batch if len(rows) == len(order) else batch.take(pa.array(rows)))

    def close(self) -> list[DayFile]:
        """Write the remaining records. Returns the files, by day."""
        files = []
        for key, day in self._days.items():
            if day.waiting:
                self._write(key)
            day.finish_part()
            path = day.parts[0] if len(day.parts) == 1 else self._joined(key, day.parts)
            files.append(DayFile(day=_named(key), path=path, records=day.records))
        return sorted(files, key=lambda each: each.day)

    def abandon(self) -> None:
        """Remove the files."""
        for each in self._days.values():
            each.finish_part()
            for part in each.parts:
                part.unlink(missing_ok=True)

    def _add(self, key: _Key, batch: pa.RecordBatch) -> None:
        if self._values_max is not None:
            self._values.add(key[1:])
            if len(self._values) > self._values_max:
                raise PenstockError(
                    ErrorCode.INVALID_CONFIG,
                    f"--partition-by {','.join(self._partition_by)}: the records of one task have more than "
                    f"{self._values_max:,} values, and each makes a file for each day: choose columns of fewer values, "
                    "or day(column) of a time",
                )
        day = self._days.setdefault(key, _Day())
        held_bytes = batch.nbytes + _BATCH_BYTES
        day.waiting.append(batch)
        day.records += batch.num_rows
        day.waiting_bytes += held_bytes
        self._waiting_bytes += held_bytes
        if day.waiting_bytes >= ROW_GROUP_BYTES:
            self._write(key)
        while self._waiting_bytes >= WAITING_BYTES_MAX:
            self._write(max(self._days, key=lambda each: self._days[each].waiting_bytes))

    def _write(self, key: _Key) -> None:
        """Write the day's waiting records as a row group."""
        day = self._days[key]
        if day.writer is None:
            while len(self._open) >= OPEN_FILES_MAX:
                self._open.pop(next(iter(self._open))).finish_part()
            day.parts.append(self._folder / f"{_local_name(key)}-{len(day.parts)}.parquet")
            day.writer = self._writer(day.parts[-1])
        self._open.pop(key, None)
        self._open[key] = day
        table = pa.Table.from_batches(day.waiting).cast(self._schema)
        day.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting_bytes -= day.waiting_bytes
        day.waiting, day.waiting_bytes = [], 0

    def _joined(self, key: _Key, parts: list[Path]) -> Path:
        """One file of a day's parts, row group by row group. It removes the parts."""
        path = self._folder / f"{_local_name(key)}.parquet"
        with self._writer(path) as writer:
            for part in parts:
                with pq.ParquetFile(part) as opened:
                    for index in range(opened.num_row_groups):
                        group = opened.read_row_group(index)
                        writer.write_table(group, row_group_size=max(1, group.num_rows))
                part.unlink()
        return path

    def _writer(self, path: Path) -> pq.ParquetWriter:
        return pq.ParquetWriter(path, self._schema, compression=COMPRESSION, use_dictionary=_FEW_VALUES)


def _partition(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column, or the days or hours of its times, as Iceberg counts them: from 1970, downwards before."""
    transform, column = parse_partition(name)
    found = batch.column(column)
    return found if transform == "identity" else pc.floor_temporal(found, unit=transform).cast(pa.int64())


def _named(key: _Key) -> str:
    """The day, and a digest of the values: they may have any length and letters."""
    day, *values = key
    digest = hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{np.datetime64(day, 'D')}/{digest}" if values else str(np.datetime64(day, "D"))


def _local_name(key: _Key) -> str:
    return _named(key).replace("/", "-")
