"""Splits records by the day of their timestamp (UTC) into Parquet files on local disk.

Records of one day keep their order. The memory of waiting records is bounded. Once 32 MiB of a day's records wait, they
are written as a row group. Once 64 MiB of all days wait, the largest day's records are written. Each day keeps its file
open until the end.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock_core.limits import MIB
from penstock_spark.archive.archive_schema import FILE_SCHEMA

ROW_GROUP_BYTES = 32 * MIB
WAITING_BYTES_MAX = 64 * MIB
COMPRESSION = "zstd"

_DAY_US = 24 * 3_600 * 1_000_000
_FEW_VALUES = ["key", "topic", "partition", "timestampType"]  # these columns repeat values: a dictionary saves bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFile:
    """A finished file. `day` has the form `2026-11-21`."""

    day: str
    path: Path
    records: int


@dataclass(slots=True)
class _Day:
    """The open file of one day, and the records that wait for it."""

    path: Path
    writer: pq.ParquetWriter
    records: int = 0
    waiting_bytes: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)

    def write(self) -> None:
        """Write the waiting records as a row group."""
        if self.waiting:
            table = pa.Table.from_batches(self.waiting).cast(FILE_SCHEMA)
            self.writer.write_table(table, row_group_size=max(1, table.num_rows))
            self.waiting, self.waiting_bytes = [], 0


class DayFiles:
    """The files of one group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._days: dict[int, _Day] = {}
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records. Writes row groups when the waiting records exceed the bounds."""
        times: np.ndarray[tuple[int], np.dtype[np.int64]] = np.asarray(batch.column("timestamp").cast(pa.int64()))
        days = times // _DAY_US
        for day in np.unique(days):
            of_day = days == day
            self._add(int(day), batch if of_day.all() else batch.filter(pa.array(of_day)))

    def close(self) -> list[DayFile]:
        """Write the remaining records. Returns the files, by day."""
        for each in self._days.values():
            each.write()
            each.writer.close()
        return [
            DayFile(day=str(np.datetime64(day, "D")), path=each.path, records=each.records)
            for day, each in sorted(self._days.items())
        ]

    def abandon(self) -> None:
        """Remove the files."""
        for each in self._days.values():
            each.writer.close()
            each.path.unlink()

    def _add(self, number: int, batch: pa.RecordBatch) -> None:
        day = self._days.get(number)
        if day is None:
            path = self._folder / f"{number}.parquet"
            writer = pq.ParquetWriter(path, FILE_SCHEMA, compression=COMPRESSION, use_dictionary=_FEW_VALUES)
            day = self._days[number] = _Day(path, writer)
        day.waiting.append(batch)
        day.records += batch.num_rows
        day.waiting_bytes += batch.nbytes
        self._waiting_bytes += batch.nbytes
        if day.waiting_bytes >= ROW_GROUP_BYTES:
            self._write(day)
        while self._waiting_bytes >= WAITING_BYTES_MAX:
            self._write(max(self._days.values(), key=lambda each: each.waiting_bytes))

    def _write(self, day: _Day) -> None:
        self._waiting_bytes -= day.waiting_bytes
        day.write()
