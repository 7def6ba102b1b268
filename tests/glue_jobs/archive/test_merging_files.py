"""Small files are joined without a change of any row, in one commit, a bounded number in each run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.archive import merging_files
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.archiving import merge_files
from penstock_spark.archive.iceberg_table import IcebergTable
from penstock_spark.archive.merging_files import Merge, MergedFiles, SmallFile, merge_group, plan_groups
from tests.glue_jobs.archived_topic import ArchivedTopic, DyingWriter, same
from tests.glue_jobs.replay.replays import replay
from tests.support.service import Intercepted, Killed, head_of, new_topic

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "l": {"type": "array", "items": {}}}}
LINES = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}}
WIDER = {**SCHEMA, "properties": {**SCHEMA["properties"], "lines": LINES}}  # type: ignore[dict-item]  # JSON


@pytest.fixture
def archived(tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)


def merge(archived: ArchivedTopic, lake: Any = None, catalog: Any = None) -> None:
    table, store = archived.table(lake, catalog), archived.lake if lake is None else lake
    assert isinstance(table, IcebergTable)

    def run(planned: Merge) -> list[MergedFiles]:
        return [merge_group(store, planned, index) for index in range(len(planned.groups))]

    merge_files(table, run, archived.log_event)


def fill(archived: ArchivedTopic, runs: int = 6) -> None:
    for number in range(runs):
        archived.append(number % 2, 3, day=number % 3 // 2)
        archived.archive()


def test_files_of_a_day_are_joined_and_the_rows_stay(archived: ArchivedTopic) -> None:
    fill(archived, 12)
    before = len(archived.table_files())

    merge(archived)

    assert before == 12
    assert len(archived.table_files()) == 2  # two days
    assert same(archived.rows(), archived.expected())
    assert [(each["files_before"], each["files_after"]) for each in archived.events if each["event"] == "merged"] == [
        (12, 2)
    ]
    archived.append(0, 1)
    assert archived.archive().records == 1
    assert same(archived.rows(), archived.expected())
    merge(archived)  # two files of a day are left as they are
    assert len(archived.table_files()) == 3


def test_files_from_before_and_behind_a_change_of_the_schema_stay_apart(archived: ArchivedTopic) -> None:
    for schema in (SCHEMA, WIDER):
        for number in range(3):
            lines = None if number == 0 else [] if number == 1 else [{"a": 1}]
            archived.append_values(json.dumps({"n": number, "l": [1], "lines": lines}).encode(), b"[]")
            archived.archive(schema=("json", json.dumps(schema)))
    before, in_files = archived.table_rows(), rows_of_files(archived)

    merge(archived)

    assert archived.table_rows() == before
    assert rows_of_files(archived) == in_files  # a null list is no empty one
    assert len(archived.table_files()) == 2


def rows_of_files(archived: ArchivedTopic) -> list[dict[str, Any]]:
    paths = [each.removeprefix("file://") for each in archived.table_files()]
    found = [row for path in paths for row in ds.dataset(path).to_table().to_pylist()]
    return sorted(found, key=lambda row: row["offset"])


@pytest.mark.parametrize("before_next", [False, True])
def test_runs_that_are_killed_at_every_write_leave_each_row_once(archived: ArchivedTopic, before_next: bool) -> None:
    fill(archived, 12)
    kills = 0
    while len(archived.table_files()) > 2:
        mortal = DyingWriter(before_next=before_next)
        lake = Intercepted(archived.lake, put_new=mortal.write)
        catalog = archived.catalog(commit_table=mortal.write)
        try:
            merge(archived, lake, catalog)
        except Killed:
            kills += 1
        assert same(archived.rows(), archived.expected())
    assert kills >= 2
    archived.append(0, 1)
    archived.archive()
    assert same(archived.rows(), archived.expected())


def test_run_beside_an_archive_changes_nothing_and_says_so(archived: ArchivedTopic) -> None:
    fill(archived)
    table = archived.table()
    assert isinstance(table, IcebergTable)
    planned = table.plan_merge()
    assert planned is not None
    merged = [merge_group(archived.lake, planned, index) for index in range(len(planned.groups))]
    archived.append(0, 1)
    archived.archive()
    with pytest.raises(PenstockError, match="has another snapshot") as caught:
        table.commit_merge(planned, merged)
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert same(archived.rows(), archived.expected())


def test_joined_table_is_replayed_whole(archived: ArchivedTopic) -> None:
    fill(archived)
    merge(archived)
    new_topic(archived.instance, "copy", partitions=2)
    assert replay(archived).appended == len(archived.model)
    assert sum(head_of(archived.instance, "copy", each).next_offset for each in (0, 1)) == len(archived.model)


def test_joined_files_that_lack_a_row_are_refused(archived: ArchivedTopic) -> None:
    fill(archived)
    table = archived.table()
    assert isinstance(table, IcebergTable)
    planned = table.plan_merge()
    assert planned is not None
    merged = merge_group(archived.lake, planned, 0)
    before = archived.table_files()
    with pytest.raises(PenstockError, match=r"have 12 rows in the place of 9"):
        table.commit_merge(planned, [replace(merged, replaced=merged.replaced[1:])])
    assert archived.table_files() == before


def small(day: str, number: int, file_bytes: int = 1_000) -> SmallFile:
    return SmallFile(path=f"orders/data/day={day}/{number:05}.parquet", partition=day, file_bytes=file_bytes, records=1)


def test_run_takes_a_bounded_number_of_files_of_the_oldest_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging_files, "MERGED_FILES_MAX", 10)
    files = [small(day, number) for day in ("2026-01-03", "2026-01-01", "2026-01-02") for number in range(6)]
    groups = plan_groups(files)
    assert [(each[0].folder, len(each)) for each in groups] == [("day=2026-01-01", 6), ("day=2026-01-02", 4)]


def test_groups_have_a_size_and_large_and_few_files_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging_files, "MERGED_FILE_BYTES", 2_500)
    files = [small("2026-01-01", number) for number in range(7)] + [small("2026-01-02", number) for number in range(3)]
    files += [small("2026-01-03", number, merging_files.SMALL_FILE_BYTES) for number in range(9)]
    assert [len(each) for each in plan_groups(files)] == [3, 3]


def test_table_without_rows_is_left(archived: ArchivedTopic) -> None:
    archived.archive()
    merge(archived)
    assert archived.events == []
