"""Files of killed runs go, and none that a snapshot has or that a run may still commit."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_spark.archive import orphan_files
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.archiving import merge_files, remove_table_orphans
from penstock_spark.archive.iceberg_table import IcebergTable, open_catalog
from penstock_spark.archive.merging_files import Merge, MergedFiles, merge_group
from penstock_spark.archive.orphan_files import MARGIN_MS, KeptFiles, last_two, orphans
from penstock_spark.result_store import StoredObject
from tests.glue_jobs.archive.test_partitions import append, schema
from tests.glue_jobs.archived_topic import ArchivedTopic, DyingWriter
from tests.glue_jobs.storages import SOME_STORAGE
from tests.support.service import Intercepted, Killed

KEPT = KeptFiles(table="t", names=frozenset({"day=x/000000000001-00000.parquet"}), committed=3, snapshot_ms=10**12)
OLD_MS = KEPT.snapshot_ms - MARGIN_MS
DIGEST = "0123456789abcdef"


@pytest.fixture
def archived(tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)


def table_of(archived: ArchivedTopic, lake: Any = None) -> IcebergTable:
    table = archived.table(lake)
    assert isinstance(table, IcebergTable)
    return table


def removed(archived: ArchivedTopic) -> int:
    archived.events.clear()
    remove_table_orphans(archived.lake, table_of(archived), archived.log_event)
    return sum(each["files"] for each in archived.events)


def data_files(archived: ArchivedTopic) -> list[Path]:
    return sorted((archived.folder / "lake" / "web_orders" / "data").rglob("*.parquet"))


def age(archived: ArchivedTopic, days: int = 30) -> None:
    """Let all files be older than any snapshot."""
    for each in data_files(archived):
        os.utime(each, (each.stat().st_atime, each.stat().st_mtime - days * 86_400))


@pytest.mark.parametrize(
    "name",
    [
        "000000000003-00000",
        f"000000000003-00000-{DIGEST}",
        f"rebuild-{DIGEST}-000001",
        f"rebuild-{DIGEST}-000001-{DIGEST}",
        f"latest-{DIGEST}-00001",
        f"merged-{DIGEST}",
    ],
)
def test_file_of_a_name_that_archive_makes_goes_when_it_is_older_than_the_snapshot(name: str) -> None:
    found = StoredObject(path=f"t/data/day=x/{name}.parquet", size=1, put_ms=OLD_MS)

    assert list(orphans([found], KEPT)) == [found]
    assert list(orphans([replace(found, put_ms=OLD_MS + 1)], KEPT)) == []


@pytest.mark.parametrize(
    "name", ["000000000001-00000", "000000000004-00000", "part-00000-of-spark", f"rebuild-{DIGEST}", "metadata"]
)
def test_file_of_a_snapshot_of_a_later_plan_or_of_another_engine_stays(name: str) -> None:
    found = StoredObject(path=f"t/data/day=x/{name}.parquet", size=1, put_ms=0)
    assert list(orphans([found], KEPT)) == []


def test_files_of_a_killed_rebuild_go_once_another_snapshot_is_there(archived: ArchivedTopic) -> None:
    append(archived, *range(6))
    archived.archive(schema=schema())
    death = DyingWriter(before_next=False)
    with pytest.raises(Killed):
        archived.rebuild(schema(), lake=Intercepted(archived.lake, put_new=death.write))
    left = [each for each in data_files(archived) if each.name.startswith("rebuild-")]
    assert left
    age(archived, days=-1)  # as if they were younger than the snapshot: the next run of the rebuild takes them
    assert removed(archived) == 0

    append(archived, 6)
    archived.archive(schema=schema())
    age(archived)

    assert removed(archived) == len(left)
    assert [row["id"] for row in archived.table_rows()] == [*range(7)]
    assert removed(archived) == 0


def test_replaced_files_stay_while_a_snapshot_has_them(archived: ArchivedTopic) -> None:
    for number in range(6):
        append(archived, number)
        archived.archive(schema=schema())

    def run(planned: Merge) -> list[MergedFiles]:
        return [merge_group(archived.lake, planned, index) for index in range(len(planned.groups))]

    merge_files(table_of(archived), run, archived.log_event)
    age(archived)
    assert removed(archived) == 0

    catalog_table = archived.catalog().load_table(("penstock", "web_orders"))
    current = catalog_table.current_snapshot().snapshot_id
    expiring = catalog_table.maintenance.expire_snapshots()
    for each in catalog_table.snapshots():
        if each.snapshot_id != current:
            expiring = expiring.by_id(each.snapshot_id)
    expiring.commit()

    assert removed(archived) == 6
    assert sorted(row["id"] for row in archived.table_rows()) == [*range(6)]


def test_killed_runs_find_what_they_need_when_files_are_removed_between_them(
    archived: ArchivedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs and rebuilds are killed at every write. Each time the rule removes what it can, and no row is lost."""
    monkeypatch.setattr(orphan_files, "MARGIN_MS", 0)  # one clock
    for number in range(4):
        append(archived, *range(number * 3, number * 3 + 3))
    kills = gone = 0
    steps: list[Callable[[Any, Any], object]] = [
        lambda lake, catalog: archived.archive(lake=lake, catalog=catalog, schema=schema()),
        lambda lake, catalog: archived.rebuild(schema(), lake=lake, catalog=catalog),
    ] * 2
    while steps:
        is_rebuild = len(steps) % 2 == 1  # one that is killed behind its commit would begin another
        death = DyingWriter(before_next=is_rebuild or kills % 2 == 0)
        lake = Intercepted(archived.lake, put_new=death.write)
        catalog = archived.catalog(commit_table=death.write, create_table=death.write)
        try:
            steps[0](lake, catalog)
            steps.pop(0)
            append(archived, 100 + len(steps))
        except Killed:
            kills += 1
        gone += removed(archived)

    archived.archive(schema=schema())
    assert kills > 10
    assert gone == 0  # each killed run was finished by the next
    ids = [row["id"] for row in archived.table_rows()]
    assert sorted(ids) == [*range(12), 100, 101, 102, 103]


def test_run_removes_a_bounded_number(archived: ArchivedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    append(archived, 1)
    archived.archive(schema=schema())
    for number in range(5):
        archived.lake.put_new(f"web_orders/data/day=2020-01-01/merged-{number:016x}.parquet", b"x")
    monkeypatch.setattr(orphan_files, "ORPHANS_MAX", 3)
    age(archived)

    assert [removed(archived) for _ in range(3)] == [3, 2, 0]


def test_table_without_a_snapshot_is_left(archived: ArchivedTopic) -> None:
    assert removed(archived) == 0


def test_nothing_goes_from_a_place_that_a_table_of_another_catalog_shares(archived: ArchivedTopic) -> None:
    """The second catalog commits the plans and files of the first one, whose joined files it does not know."""
    for number in range(6):
        append(archived, number)
        archived.archive()

    def run(planned: Merge) -> list[MergedFiles]:
        return [merge_group(archived.lake, planned, index) for index in range(len(planned.groups))]

    merge_files(table_of(archived), run, archived.log_event)
    age(archived)
    first, second = archived.open_catalog, f"sqlite:///{archived.folder}/second.db"
    archived.open_catalog = lambda: open_catalog(second, SOME_STORAGE)
    append(archived, 6)
    archived.archive()
    age(archived)

    for other in (archived.open_catalog, first):
        archived.open_catalog = other
        with pytest.raises(PenstockError, match=r"is of another table than penstock\.web_orders"):
            removed(archived)
    assert len(archived.table_rows()) == 6


def test_file_that_an_engine_names_by_another_form_of_its_path_stays() -> None:
    assert last_two("s3a://bucket/other/t/data/day=x/000000000001-00000.parquet") in KEPT.names
