"""Typed tables by day and chosen columns: a file has one value of each, through kills, schema changes and rebuilds."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.archive import archive_files, rebuilding
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.archiving import Sizes, merge_files
from penstock_spark.archive.day_files import DayFiles
from penstock_spark.archive.iceberg_table import IcebergTable
from penstock_spark.archive.merging_files import Merge, MergedFiles, merge_group
from penstock_spark.archive.typed_columns import FILE_SCHEMA, Typing
from penstock_spark.archive.typing_values import PARTITION_BYTES_MAX
from penstock_spark.scripts.archive import read_partitions
from tests.glue_jobs.archived_topic import SMALL, ArchivedTopic, DyingWriter
from tests.support.service import Intercepted, Killed

COUNTRIES = ["CH", "DE", None, "é/=%", ""]


def schema(**properties: str) -> tuple[str, str]:
    named = {"id": "integer", "country": "string", **properties}
    return "json", json.dumps({"properties": {name: {"type": kind} for name, kind in named.items()}})


@pytest.fixture
def archived(tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)


def append(archived: ArchivedTopic, *ids: int, **more: Any) -> None:
    values = [{"id": each, "country": COUNTRIES[each % len(COUNTRIES)], **more} for each in ids]
    archived.append_values(*(json.dumps(each).encode() for each in values), partition=ids[0] % 2)


def files_of(archived: ArchivedTopic, *columns: str) -> list[tuple[Any, ...]]:
    """The values of the columns in each file of the table, as its manifests say; the rows of the file have them all."""
    found = []
    for task in archived.catalog().load_table(("penstock", "web_orders")).scan().plan_files():
        rows = pq.read_table(str(task.file.file_path).removeprefix("file://"), columns=[*columns]).to_pylist()
        [values] = {tuple(row[each] for each in columns) for row in rows}
        assert tuple(task.file.partition)[1:] == values
        found.append(values)
    return found


def ids_where(archived: ArchivedTopic, condition: str) -> list[int]:
    found = archived.catalog().load_table(("penstock", "web_orders")).scan(row_filter=condition)
    return sorted(row["id"] for row in found.to_arrow().to_pylist())


def partition_names(archived: ArchivedTopic) -> list[str]:
    fields = archived.catalog().load_table(("penstock", "web_orders")).spec().fields
    return [each.name.rpartition("_")[0] or each.name for each in fields]


def test_each_file_has_one_value_and_a_filter_reads_its_files_alone(archived: ArchivedTopic) -> None:
    append(archived, *range(20))

    archived.archive(Sizes(group_bytes=10**6, commit_bytes=10**6), schema=schema(), partition_by=["country"])

    assert Counter(files_of(archived, "country")) == Counter((each,) for each in COUNTRIES)
    assert ids_where(archived, "country = 'DE'") == [1, 6, 11, 16]
    table = archived.catalog().load_table(("penstock", "web_orders"))
    assert len(list(table.scan(row_filter="country = 'DE'").plan_files())) == 1
    assert [row["id"] for row in archived.table_rows()] == [*range(20)]


def test_run_without_the_option_keeps_the_partitions_and_an_empty_one_leaves_days_alone(
    archived: ArchivedTopic,
) -> None:
    for number, (partition_by, expected) in enumerate(
        [
            (None, []),
            (["country"], ["country"]),
            (None, ["country"]),
            (["country", "partition"], ["country", "partition"]),
        ]
    ):
        append(archived, number)
        archived.archive(schema=schema(), partition_by=partition_by)
        assert partition_names(archived) == ["day", *expected]
    append(archived, 4)
    archived.archive(schema=schema(), partition_by=[])

    assert partition_names(archived) == ["day"]
    assert [row["id"] for row in archived.table_rows()] == [0, 2, 4, 1, 3]
    assert ids_where(archived, "country = 'DE'") == [1]


def test_text_that_is_too_long_for_a_partition_goes_to_raw(archived: ArchivedTopic) -> None:
    long = "é" * (PARTITION_BYTES_MAX // 2)
    for text in (long, long + "x"):
        archived.append_values(json.dumps({"id": 1, "country": text}).encode())

    result = archived.archive(schema=schema(), partition_by=["country"])

    first, second = archived.table_rows()
    assert result.unfit_records == 1
    assert (first["country"], second["country"]) == (long, None)
    assert (
        second["_raw_reason"]
        == f"country: {PARTITION_BYTES_MAX + 1} bytes, and a partition's text has {PARTITION_BYTES_MAX}"
    )


@pytest.mark.parametrize("before_next", [False, True])
def test_each_record_is_there_once_when_runs_are_killed_at_every_write(
    archived: ArchivedTopic, before_next: bool
) -> None:
    """The killed runs ask for other partitions in turns: a plan keeps its own, and the last run's come at the end."""
    for number in range(4):
        append(archived, *range(number * 5, number * 5 + 5))
    kills = 0
    while True:
        death = DyingWriter(before_next=before_next)
        lake = Intercepted(archived.lake, put_new=death.write)
        catalog = archived.catalog(commit_table=death.write, create_table=death.write)
        partition_by = ["country", "partition"] if kills % 2 else ["country"]
        try:
            archived.archive(SMALL, lake=lake, catalog=catalog, schema=schema(), partition_by=partition_by)
        except Killed:
            kills += 1
            continue
        break

    assert kills > 10
    rows = [(row["partition"], row["offset"]) for row in archived.table_rows()]
    assert len({*rows}) == len(rows) == 20
    append(archived, 20)
    archived.archive(schema=schema(), partition_by=["country"])
    assert partition_names(archived) == ["day", "country"]
    assert ids_where(archived, "country = 'DE'") == [1, 6, 11, 16]


def test_rebuild_puts_the_whole_history_into_the_new_partitions_and_types(archived: ArchivedTopic) -> None:
    append(archived, *range(10), paid=True)
    archived.archive(schema=schema(), partition_by=["country"])
    append(archived, *range(10, 20), paid=False)
    archived.archive(schema=schema(paid="boolean"))

    archived.rebuild(schema(paid="boolean"), partition_by=["country", "paid"])
    assert {*files_of(archived, "country", "paid")} == {(each, paid) for each in COUNTRIES for paid in (True, False)}
    archived.rebuild(schema(paid="string"))  # no value fits, and its partition stays
    assert {row["_raw_reason"] for row in archived.table_rows()} == {
        "paid: bool true, and not str",
        "paid: bool false, and not str",
    }
    only_id = "json", '{"properties": {"id": {"type": "integer"}}}'
    archived.rebuild(only_id)
    assert partition_names(archived) == ["day"]  # the new schema has none of the columns
    append(archived, 20, paid=True)
    archived.archive(schema=schema(paid="boolean"), partition_by=["paid"])
    assert partition_names(archived) == ["day", "paid"]
    assert [row["id"] for row in archived.table_rows()] == [*range(0, 21)]


def test_partition_follows_its_column_to_a_new_name(archived: ArchivedTopic) -> None:
    append(archived, 0, 1)
    archived.archive(schema=schema(), partition_by=["country"])
    renamed = {"properties": {"id": {"type": "integer"}, "land": {"type": "string", "aliases": ["country"]}}}
    archived.append_values(b'{"id": 2, "land": "CH"}', b'{"id": 3, "land": "FR"}')

    archived.archive(schema=("json", json.dumps(renamed)))

    assert ids_where(archived, "land = 'CH'") == [0, 2]
    assert ids_where(archived, "land = 'FR'") == [3]


def test_small_files_of_a_value_are_joined_and_those_of_older_partitions_are_left(archived: ArchivedTopic) -> None:
    for number in range(5):
        append(archived, number)
        archived.archive(schema=schema())
    for number in range(0, 40):
        append(archived, number)
        archived.archive(schema=schema(), partition_by=["country"])
    table = archived.table()
    assert isinstance(table, IcebergTable)

    def run(planned: Merge) -> list[MergedFiles]:
        return [merge_group(archived.lake, planned, index) for index in range(len(planned.groups))]

    merge_files(table, run, archived.log_event)

    assert len(archived.table_files()) == 5 + len(COUNTRIES)
    assert ids_where(archived, "country = 'DE'") == [1, *range(1, 40, 5)]


@pytest.mark.parametrize(
    "name", ["nowhere", "value", "headers", "_raw", "offset", "timestamp", "day(timestamp)", "hour(country)", "day(x)"]
)
def test_column_that_makes_no_partitions_is_refused(archived: ArchivedTopic, name: str) -> None:
    append(archived, 1)

    with pytest.raises(PenstockError, match=re.escape(f"--partition-by '{name}': name a column")) as raised:
        archived.archive(schema=schema(), partition_by=[name])

    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert archived.archive(schema=schema()).records == 1


def test_option_names_each_topic_of_the_run_once(archived: ArchivedTopic) -> None:
    topics = [archived.instance.topic_cache.read_through("Web.orders")]

    assert read_partitions(["Web.orders=country,paid"], topics) == {"Web.orders": ("country", "paid")}
    assert read_partitions(["Web.orders="], topics) == {"Web.orders": ()}
    for wrong in (["other=a"], ["Web.orders"], ["Web.orders=a,a"], ["Web.orders=a", "Web.orders=b"]):
        with pytest.raises(PenstockError, match="give TOPIC=COLUMN"):
            read_partitions(wrong, topics)


TIMES = ["2026-11-21T23:30:00Z", "2026-11-22T00:30:00+02:00", "1969-12-31T23:59:59Z", None, "2026-11-21T22:05:00Z"]


@pytest.mark.parametrize(
    ("transform", "wanted", "rows"),
    [("day", [[0, 1, 4], [2], [3]], [0, 1, 4]), ("hour", [[0], [1, 4], [2], [3]], [1, 4])],
)
def test_files_have_one_day_or_hour_of_a_column_with_times_and_a_filter_reads_them_alone(
    archived: ArchivedTopic, transform: str, wanted: list[list[int]], rows: list[int]
) -> None:
    when = {"properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}}
    for number, each in enumerate(TIMES):
        archived.append_values(json.dumps({"id": number, "at": each}).encode())

    one_commit = Sizes(group_bytes=10**6, commit_bytes=10**6)
    archived.archive(one_commit, schema=("json", json.dumps(when)), partition_by=[f"{transform}(at)"])

    table = archived.catalog().load_table(("penstock", "web_orders"))
    tasks = list(table.scan().plan_files())
    files = [pq.read_table(str(each.file.file_path).removeprefix("file://"))["id"].to_pylist() for each in tasks]
    assert sorted(files) == wanted
    condition = "at >= '2026-11-21T22:00:00+00:00' and at < '2026-11-21T22:59:00+00:00'"
    [task] = table.scan(row_filter=condition).plan_files()
    assert pq.read_table(str(task.file.file_path).removeprefix("file://"))["id"].to_pylist() == rows
    assert ids_where(archived, condition) == [1, 4]

    archived.append_values(b'{"id": 5, "at": "2026-11-23T00:00:00Z"}')
    archived.archive(schema=("json", json.dumps(when)))  # the partitions stay
    table = archived.catalog().load_table(("penstock", "web_orders"))
    assert [str(each.transform) for each in table.spec().fields] == ["day", transform]
    archived.rebuild(("json", json.dumps(when)))
    assert [row["id"] for row in archived.table_rows()] == [*range(6)]
    archived.append_values(b'{"id": 6, "at": null}')
    archived.archive(schema=("json", json.dumps(when)), partition_by=["id"])
    assert ids_where(archived, condition) == [1, 4]


def test_column_of_too_many_values_is_refused_before_a_plan_is_put_and_a_rebuild_changes_nothing(
    archived: ArchivedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "ARCHIVE_PARTITION_VALUES_MAX", 8)
    monkeypatch.setattr(rebuilding, "ARCHIVE_PARTITION_VALUES_MAX", 8)
    append(archived, *range(4))
    told = "--partition-by id: the records of one task have more than 8 values"
    archived.archive(schema=schema(), partition_by=["id"])
    append(archived, *range(4, 14))

    with pytest.raises(PenstockError, match=told) as raised:
        archived.archive(schema=schema(), partition_by=["id"])

    assert raised.value.code is ErrorCode.INVALID_CONFIG
    archived.archive(schema=schema(), partition_by=["country"])
    assert [row["id"] for row in archived.table_rows()] == [*range(14)]
    assert partition_names(archived) == ["day", "country"]
    append(archived, *range(14, 30))
    archived.archive(Sizes(group_bytes=10**6, commit_bytes=10**6), schema=schema(), partition_by=[])
    with pytest.raises(PenstockError, match=told):
        archived.rebuild(schema(), partition_by=["id"])
    assert partition_names(archived) == ["day"]
    assert [row["id"] for row in archived.table_rows() if row["id"] > 13] == [*range(14, 30)]


def test_days_and_values_make_files_whose_memory_is_bounded(tmp_path: Path) -> None:
    """300 days with two values each: 600 files, of which 100 are open at once."""
    fields = [*FILE_SCHEMA, pa.field("paid", pa.bool_(), metadata={"PARQUET:field_id": "20"})]
    files = DayFiles(tmp_path, Typing.of("json", "{}", pa.schema(fields), ["paid"]))
    rows = [
        {"timestamp": day * 86_400_000_000, "offset": day, "paid": paid} for day in range(300) for paid in (True, False)
    ]
    files.add(pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields)))

    found = files.close()

    assert len({each.day for each in found}) == len(found) == 600
    assert {each.records for each in found} == {1}
