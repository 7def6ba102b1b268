"""Records by day: order within a day, few open files, and a day whose file was closed in between."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_spark.archive import day_files
from penstock_spark.archive.day_files import OPEN_FILES_MAX, DayFile, DayFiles
from penstock_spark.archive.typed_columns import FILE_SCHEMA

DAY_US = 86_400_000_000
START_US = 20_000 * DAY_US


def batch_of(days: list[int], first_offset: int = 0) -> pa.RecordBatch:
    """A record of each of these days, with rising offsets."""
    times = START_US + np.array(days, dtype=np.int64) * DAY_US

    def column(field: pa.Field) -> pa.Array:
        if field.name == "timestamp":
            return pa.array(times).cast(field.type)
        if pa.types.is_integer(field.type):
            return pa.array(np.arange(first_offset, first_offset + len(days))).cast(field.type)
        return pa.nulls(len(days), field.type) if field.nullable else pa.array(["x"] * len(days)).cast(field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in FILE_SCHEMA], schema=FILE_SCHEMA)


def offsets(file: DayFile) -> list[int]:
    found: list[int] = pq.read_table(file.path).column("offset").to_pylist()
    return found


def open_files(folder: Path) -> int:
    links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(each) and os.readlink(each).startswith(str(folder)) for each in links)


def test_many_days_are_written_with_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_files, "WAITING_BYTES_MAX", 100_000)
    files = DayFiles(tmp_path)
    for first in range(0, 600, 50):
        files.add(batch_of([day % 300 for day in range(first, first + 50)], first))
        assert open_files(tmp_path) <= OPEN_FILES_MAX
    done = files.close()
    assert open_files(tmp_path) == 0
    assert [each.records for each in done] == [2] * 300
    assert [offsets(each) for each in done[::60]] == [[day, day + 300] for day in range(0, 300, 60)]
    assert [each.day for each in done[:2]] == ["2024-10-04", "2024-10-05"]


def test_day_that_comes_again_after_its_file_was_closed_is_one_file_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_files, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(day_files, "OPEN_FILES_MAX", 2)
    files = DayFiles(tmp_path)
    for first in range(0, 40, 4):
        files.add(batch_of([0, 1, 2, 3], first))
    done = files.close()
    assert [offsets(each) for each in done] == [[*range(day, 40, 4)] for day in range(4)]
    assert len({*tmp_path.iterdir()}) == 4


def test_abandoned_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_files, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(day_files, "OPEN_FILES_MAX", 1)
    files = DayFiles(tmp_path)
    files.add(batch_of([0, 1, 0, 2]))
    assert [*tmp_path.iterdir()]
    files.abandon()
    assert not [*tmp_path.iterdir()]
