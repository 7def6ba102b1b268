"""Typed tables: pyiceberg reads each value as its source had it, through schema changes, kills and misfits."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.dataset as ds
import pytest
from google.protobuf import descriptor_pb2

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.archiving import Sizes
from penstock_spark.archive.iceberg_table import IcebergTable
from penstock_spark.archive.protobuf_messages import schema_text
from penstock_spark.archive.rebuilding import rebuild_file
from penstock_spark.archive.typed_columns import FILE_SCHEMA
from tests.glue_jobs.archived_topic import SMALL, ArchivedTopic, DyingWriter
from tests.support.proto_messages import add_fields
from tests.support.service import Intercepted, Killed

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["id", "paid"],
    "properties": {
        "id": {"type": "integer"},
        "paid": {"type": "string", "format": "decimal", "precision": 12, "scale": 2},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "opens": {"type": "string", "format": "time"},
        "by": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        },
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
        },
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "note": {"type": ["string", "null"]},
        "anything": {},
        "timestamp": {"type": "number"},
    },
}
VALUES: list[dict[str, Any]] = [
    {
        "id": 1,
        "paid": "9.50",
        "at": "2026-11-21T10:00:00.25+01:00",
        "day": "2026-11-21",
        "opens": "08:30:00.5Z",
        "by": {"name": "ada", "age": 36, "unknown": 1},
        "lines": [{"sku": "a", "n": 2}, {"sku": None}],
        "tags": {"x": "1"},
        "note": None,
        "anything": [1, {"a": 2}],
        "timestamp": 5,
    },
    {"id": 2, "paid": "0"},
]
EXPECTED: list[dict[str, Any]] = [
    {
        "id": 1,
        "paid": Decimal("9.50"),
        "at": datetime(2026, 11, 21, 9, 0, 0, 250_000, tzinfo=UTC),
        "value_day": date(2026, 11, 21),
        "opens": time(8, 30, 0, 500_000),
        "by": {"name": "ada", "age": 36},
        "lines": [{"sku": "a", "n": 2}, {"sku": None, "n": None}],
        "tags": [("x", "1")],
        "note": None,
        "anything": '[1, {"a": 2}]',
        "value_timestamp": 5.0,
    },
    {
        **dict.fromkeys(("at", "value_day", "opens", "by", "lines", "tags", "note", "anything", "value_timestamp")),
        "id": 2,
        "paid": Decimal("0.00"),
    },
]
TYPED = [*EXPECTED[0]]


def schema(document: dict[str, Any], kind: str = "json") -> tuple[str, str]:
    return kind, json.dumps(document)


def data(*values: Any) -> list[bytes]:
    return [json.dumps(each).encode() for each in values]


def integers(*names: str, **others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**{name: {"type": "integer"} for name in names}, **others}}


@pytest.fixture
def archived(tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG)


def picked(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def test_table_has_each_field_of_the_source_value_by_value(archived: ArchivedTopic) -> None:
    archived.append_values(*data(*VALUES), None)

    result = archived.archive(schema=schema(ORDER))

    rows = archived.table_rows()
    assert picked(rows[:1], *TYPED) == EXPECTED[:1]
    assert picked(rows[1:2], *TYPED) == [{**EXPECTED[1], "lines": []}]  # pyiceberg 0.12; in the file it is null
    found = ds.dataset(archived.folder / "lake" / "web_orders" / "data", format="parquet").to_table()
    assert picked(found.to_pylist()[:2], *TYPED) == EXPECTED
    assert set(picked(found.to_pylist(), *TYPED)[2].values()) == {None}
    assert {(each["_raw"], each["_raw_reason"]) for each in rows} == {(None, None)}
    assert [each["value"] for each in rows] == [*data(*VALUES), None]
    assert (result.records, result.unfit_records) == (3, 0)


def test_avro_values_are_typed_as_their_schema_says(archived: ArchivedTopic) -> None:
    order = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
            {"name": "by", "type": {"type": "record", "name": "By", "fields": [{"name": "age", "type": "int"}]}},
            {"name": "mixed", "type": ["int", "string"]},
        ],
    }
    value = {
        "id": 2**40,
        "paid": Decimal("9.50"),
        "at": datetime(2026, 11, 21, tzinfo=UTC),
        "note": "n",
        "tags": {"a": 1},
        "state": "DONE",
        "by": {"age": 5},
        "mixed": "text",
    }
    archived.append_values(avro(order, value), b"\x00", avro(order, {**value, "note": None}) + b"more")

    result = archived.archive(schema=schema(order, "avro"))

    rows = archived.table_rows()
    assert picked(rows, *value)[0] == {**value, "tags": [("a", 1)], "mixed": '"text"'}
    assert [each["_raw"] is None for each in rows] == [True, False, False]
    assert "cannot be decoded" in rows[1]["_raw_reason"]
    assert "4 bytes follow the Avro value" in rows[2]["_raw_reason"]
    assert result.unfit_records == 2


def avro(order: dict[str, Any], value: dict[str, Any]) -> bytes:
    import io

    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(order), value)
    return buffer.getvalue()


def test_value_that_does_not_fit_goes_to_raw_with_its_reason_and_is_counted(archived: ArchivedTopic) -> None:
    cases = [
        (b'{"id": 1, "paid": "1"', "cannot be decoded"),
        (b"[]", "list [], and not an object"),
        (b'{"paid": "1"}', "id: null or missing, and the schema requires it"),
        (b'{"id": "1", "paid": "1"}', 'id: str "1", and not a whole number'),
        (b'{"id": true, "paid": "1"}', "id: bool true, and not a whole number"),
        (b'{"id": 1.5, "paid": "1"}', "id: float 1.5, and not a whole number"),
        (b'{"id": 9223372036854775808, "paid": "1"}', "id: 9223372036854775808 does not fit into 64 bits"),
        (b'{"id": 1, "paid": "1.234"}', "paid: 1.234 does not fit into decimal(12,2)"),
        (b'{"id": 1, "paid": "x"}', "paid: 'x' is no decimal"),
        (b'{"id": 1, "paid": "NaN"}', "paid: 'NaN' is no finite number"),
        (b'{"id": 1, "paid": "1", "at": "2026-11-21T10:00:00"}', "at: 2026-11-21T10:00:00 names no time zone"),
        (b'{"id": 1, "paid": "1", "at": "2026-11-21T10:00:00.1234567Z"}', "has digits behind the microseconds"),
        (b'{"id": 1, "paid": "1", "at": "0001-01-01T00:00:00+10:00"}', "lies outside of the years 1 to 9999"),
        (b'{"id": 1, "paid": "1", "opens": "12:00:00+02:00"}', "opens: 12:00:00+02:00 has an offset"),
        (b'{"id": 1, "paid": "1", "opens": "12:00:00.0000001"}', "opens: '12:00:00.0000001' has digits behind"),
        (b'{"id": 9007199254740994.0, "paid": "1"}', "id: float 9007199254740994.0, and not a whole number"),
        (b'{"id": 1, "paid": "1", "day": "21.11.2026"}', "value_day: '21.11.2026' is no date of ISO 8601"),
        (b'{"id": 1, "paid": "1", "by": {}}', "by: name: null or missing"),
        (b'{"id": 1, "paid": "1", "by": "ada"}', 'by: str "ada", and not dict'),
        (b'{"id": 1, "paid": "1", "lines": [{"n": "x"}]}', "lines: element: n: str"),
        (b'{"id": 1, "paid": "1", "lines": "ab"}', 'lines: str "ab", and not list'),
        (b'{"id": 1, "paid": "1", "tags": {"a": 1}}', "tags: value: int 1, and not str"),
        (b'{"id": 1, "paid": "1", "timestamp": true}', "value_timestamp: bool true"),
        (b'{"id": 1, "paid": "1", "note": 5}', "note: int 5, and not str"),
    ]
    archived.append_values(*(value for value, _ in cases), *data(VALUES[1]))

    result = archived.archive(schema=schema(ORDER))

    rows = archived.table_rows()
    assert [each["_raw"] for each in rows] == [*(value for value, _ in cases), None]
    for row, (_, reason) in zip(rows, cases, strict=False):
        assert reason in row["_raw_reason"]
        assert {row[name] for name in ("id", "paid", "note")} == {None}
    assert picked(rows, "id", "paid")[-1] == {"id": 2, "paid": Decimal("0.00")}
    assert result.unfit_records == len(cases)
    assert [each["records"] for each in archived.events if each["event"] == "unfit"] == [len(cases)]


def test_number_with_a_fraction_is_no_integer_whatever_its_neighbours_are(archived: ArchivedTopic) -> None:
    values = [b'{"a": 1.5}', b'{"a": -2.9}', b'{"a": 10000000000.5}']
    archived.append_values(*values)
    result = archived.archive(schema=schema(integers("a")))
    assert [(each["a"], each["_raw"]) for each in archived.table_rows()] == [(None, value) for value in values]
    assert result.unfit_records == 3


def test_changed_schema_adds_and_widens_and_renames_by_alias(archived: ArchivedTopic) -> None:
    small = integers(n={"type": "integer", "format": "int32"}, name={"type": "string"})
    archived.append_values(*data({"n": 1, "name": "a"}))
    archived.archive(schema=schema(small))
    wider = integers("n", full_name={"type": "string", "aliases": ["name"]}, more={"type": "boolean"})
    archived.append_values(*data({"n": 2**40, "full_name": "b", "more": True}))
    archived.archive(schema=schema(wider))

    assert picked(archived.table_rows(), "n", "full_name", "more") == [
        {"n": 1, "full_name": "a", "more": None},
        {"n": 2**40, "full_name": "b", "more": True},
    ]
    assert "name" not in archived.table_rows()[0]


def test_field_of_protobuf_with_a_new_name_is_found_by_its_number(archived: ArchivedTopic) -> None:
    for names in (["id", "note"], ["id"], ["number", "remark"]):
        files = descriptor_pb2.FileDescriptorSet()
        message = files.file.add(name="a.proto", syntax="proto3").message_type.add(name="M")
        add_fields(message, *(f"int64 {name}" for name in names))
        archived.append_values(b"\x08\x01\x10\x02")
        archived.archive(schema=("protobuf", schema_text(files.SerializeToString(), "")))
    rows = archived.table_rows()
    assert picked(rows, "number", "remark") == [
        {"number": 1, "remark": 2},
        {"number": 1, "remark": None},
        {"number": 1, "remark": 2},
    ]
    assert not {"id", "note"} & set(rows[0])


def test_column_that_a_schema_drops_stays_and_nested_fields_are_added(archived: ArchivedTopic) -> None:
    first = integers("a", by=integers("x"))
    archived.append_values(*data({"a": 1, "by": {"x": 1}}))
    archived.archive(schema=schema(first))
    archived.append_values(*data({"by": {"y": 2}, "a": 9}))
    archived.archive(schema=schema(integers(by=integers("y"))))
    archived.append_values(*data({"by": {"x": 3, "y": 3}, "a": 3}))
    archived.archive(schema=schema(integers("a", by=integers("y", "x"))))

    assert picked(archived.table_rows(), "a", "by") == [
        {"a": 1, "by": {"x": 1, "y": None}},
        {"a": None, "by": {"x": None, "y": 2}},
        {"a": 3, "by": {"x": 3, "y": 3}},
    ]


def test_table_that_was_archived_before_it_had_a_schema_goes_on_with_one(archived: ArchivedTopic) -> None:
    archived.append_values(*data({"a": 1}))
    archived.archive()
    archived.append_values(*data({"a": 2}))
    archived.archive(schema=schema(integers("a")))
    archived.append_values(*data({"a": 3}))
    archived.archive()  # a run without the option writes no typed columns

    assert [each["a"] for each in archived.table_rows()] == [None, 2, None]
    assert [each["value"] for each in archived.table_rows()] == data({"a": 1}, {"a": 2}, {"a": 3})


def test_column_of_another_type_is_refused_and_nothing_is_archived(archived: ArchivedTopic) -> None:
    archived.append_values(*data({"a": 1}))
    archived.archive(schema=schema(integers("a")))
    archived.append_values(*data({"a": "x"}))
    with pytest.raises(PenstockError, match=r"does not fit the columns of table web_orders.*another name") as caught:
        archived.archive(schema=schema(integers(a={"type": "string"})))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert len(archived.table_rows()) == 1


@pytest.mark.parametrize("before_next", [False, True])
def test_each_offset_is_typed_once_when_runs_are_killed_at_every_write(
    archived: ArchivedTopic, before_next: bool
) -> None:
    values = data(*({"n": number} for number in range(8)))
    for number in range(0, 8, 2):
        archived.append_values(*values[number : number + 2], partition=number // 2 % 2)
    kills = 0
    while True:
        mortal = DyingWriter(before_next=before_next)
        lake = Intercepted(archived.lake, put_new=mortal.write)
        catalog = archived.catalog(commit_table=mortal.write, create_table=mortal.write)
        columns = ["n"] if kills % 2 else ["n", "m"]  # the schema changes between the runs, too
        try:
            archived.archive(Sizes(group_bytes=100, commit_bytes=200), lake, catalog, schema=schema(integers(*columns)))
            break
        except Killed:
            kills += 1
    assert kills > 5
    assert sorted(each["n"] for each in archived.table_rows()) == list(range(8))


def test_run_finishes_the_plan_of_a_killed_run_by_the_schema_of_that_plan(archived: ArchivedTopic) -> None:
    archived.append_values(*data({"n": 1, "m": 1}))

    kill_with_a_plan(archived, integers("n"))
    archived.archive(schema=schema(integers("n", "m")))
    assert picked(archived.table_rows(), "n", "m") == [{"n": 1, "m": None}]


# Rebuilds.


def rebuild(archived: ArchivedTopic, document: dict[str, Any], lake: Any = None, catalog: Any = None) -> None:
    archived.rebuild(schema(document), lake, catalog)


CHANGES: list[dict[str, Any]] = [
    integers("a"),
    integers("a", "b"),
    integers("a", c={"type": "string"}),
    integers("a", by=integers("x")),
    integers("a", by=integers("x", "y")),
    integers(a={"type": "number"}),
    integers(a={"type": "string"}),
    integers("d", a={"type": "string"}),
    {**integers("d", "a"), "required": ["a"]},
    integers("a", "b", "d", c={"type": "string"}, by=integers("x", "y")),
]


def test_ten_schema_changes_and_a_rebuild_leave_every_record_in_the_newest_columns_or_in_raw(
    archived: ArchivedTopic,
) -> None:
    sent: list[dict[str, Any]] = []
    for number, document in enumerate(CHANGES):
        values = [
            {"a": number, "b": number, "c": "c", "d": 4, "by": {"x": 1, "y": number}},
            {"a": "text", "b": number},
            {"b": "text", "a": number},
        ]
        sent += values
        archived.append_values(*data(*values))
        if number in (5, 6):  # the changes that no column takes as it is
            with pytest.raises(PenstockError, match="--rebuild"):
                archived.archive(schema=schema(document))
            rebuild(archived, document)
        if number == 8:
            rebuild(archived, document)
        archived.archive(schema=schema(document))
    rebuild(archived, CHANGES[-1])

    rows = archived.table_rows()
    assert [json.loads(each["value"]) for each in rows] == sent
    newest = ("a", "b", "d", "c", "by")
    for row, value in zip(rows, sent, strict=True):
        if isinstance(value["a"], int) and isinstance(value["b"], int):
            assert {name: row[name] for name in newest} == value
            assert row["_raw"] is None
        else:
            assert {row[name] for name in ("a", "b", "d", "c")} == {None}
            assert json.loads(row["_raw"]) == value
            assert "and not a whole number" in row["_raw_reason"]
    assert set(rows[0]) == {*FILE_SCHEMA.names, *newest, "_raw", "_raw_reason"}
    assert [(each["records"], each["unfit"]) for each in archived.events if each["event"] == "rebuilt"][-1] == (30, 20)


def test_archive_goes_on_behind_a_rebuild_and_the_rebuild_types_what_had_no_schema(archived: ArchivedTopic) -> None:
    archived.append_values(*data({"a": 1}))
    archived.archive()
    rebuild(archived, integers("a"))
    archived.append_values(*data({"a": 2}))
    archived.archive(schema=schema(integers("a")))
    assert [each["a"] for each in archived.table_rows()] == [1, 2]
    assert archived.archive(schema=schema(integers("a"))).commits == 0


@pytest.mark.parametrize("before_next", [False, True])
def test_rebuild_that_is_killed_at_every_write_leaves_each_record_once(
    archived: ArchivedTopic, before_next: bool
) -> None:
    for number in range(4):
        archived.append_values(*data({"a": number}, {"a": "x"}), partition=number % 2)
        archived.archive(schema=schema(integers("a")))
    kills = 0
    while True:
        mortal = DyingWriter(before_next=before_next)
        lake = Intercepted(archived.lake, put_new=mortal.write)
        catalog = archived.catalog(commit_table=mortal.write)
        try:
            rebuild(archived, integers(a={"type": "string"}), lake, catalog)
            break
        except Killed:
            kills += 1
            assert len(archived.table_rows()) == 8
            found = archived.catalog().load_table(("penstock", "web_orders")).inspect.files()
            if "rebuild-" in str(found["file_path"].to_pylist()):
                break  # the kill came after the commit
    assert kills >= 4
    rows = archived.table_rows()
    assert sorted(str(each["a"]) for each in rows) == ["None"] * 4 + ["x"] * 4
    assert sum(each["_raw"] is not None for each in rows) == 4


def test_rebuild_beside_another_writer_changes_nothing_and_says_so(archived: ArchivedTopic) -> None:
    archived.append_values(*data({"a": 1}))
    archived.archive(schema=schema(integers("a")))
    table = archived.table()
    assert isinstance(table, IcebergTable)
    plan = table.plan_rebuild(*schema(integers(a={"type": "string"})))
    assert plan is not None
    rebuilt = rebuild_file(archived.lake, plan, 0)
    archived.append_values(*data({"a": 2}))
    archived.archive(schema=schema(integers("a")))
    with pytest.raises(PenstockError, match="changed by another writer") as caught:
        table.commit_rebuild(plan, rebuilt.files)
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert [each["a"] for each in archived.table_rows()] == [1, 2]


def test_plan_of_a_killed_run_is_finished_before_a_rebuild_gives_the_table_new_columns(archived: ArchivedTopic) -> None:
    archived.append_values(*data({"a": 1}))
    archived.archive(schema=schema(integers("a")))
    archived.append_values(*data({"a": 2}, {"a": "x"}))
    kill_with_a_plan(archived, integers("a"))
    archived.append_values(*data({"a": 3}))

    result = archived.archive(schema=schema(integers("a")), before_typing=lambda: rebuild(archived, integers("a")))

    assert picked(archived.table_rows(), "a", "_raw") == [
        {"a": 1, "_raw": None},
        {"a": 2, "_raw": None},
        {"a": None, "_raw": b'{"a": "x"}'},
        {"a": 3, "_raw": None},
    ]
    assert (result.records, result.unfit_records) == (3, 1)


def test_rebuild_beside_a_plan_changes_nothing_and_says_so(archived: ArchivedTopic) -> None:
    archived.append_values(*data({"a": 1}))
    archived.archive(schema=schema(integers("a")))
    archived.append_values(*data({"a": 2}))
    kill_with_a_plan(archived, integers("a"))
    with pytest.raises(PenstockError, match=r"an archive run has planned commit 2.*run the job again") as caught:
        rebuild(archived, integers("a"))
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    archived.archive(schema=schema(integers("a")))
    assert [each["a"] for each in archived.table_rows()] == [1, 2]


def kill_with_a_plan(archived: ArchivedTopic, document: dict[str, Any]) -> None:
    def die(*_: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        archived.archive(SMALL, before_group=die, schema=schema(document))


def test_rebuild_of_a_table_without_rows_does_nothing(archived: ArchivedTopic) -> None:
    rebuild(archived, integers("a"))
    assert archived.events == []
