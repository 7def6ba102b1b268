"""The columns of a schema, and which schemas are refused."""

import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.archive.typed_columns import AS_JSON, COLUMNS_MAX, Typing, table_fields, value_columns


def columns(document: Any, kind: str = "json") -> dict[str, pa.Field]:
    return {each.name: each for each in value_columns(kind, json.dumps(document)).fields}


def of(*properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"c{number}": each for number, each in enumerate(properties)}, **more}


def test_json_types_and_nullability() -> None:
    found = columns(
        of(
            {"type": "integer"},
            {"type": ["integer", "null"]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"type": ["string", "integer"]},
            {"enum": ["a", "b"], "type": "string"},
            {"$ref": "#/$defs/Day"},
            {"type": "object"},
            True,
            required=["c0", "c1", "c3"],
            **{"$defs": {"Day": {"type": "string", "format": "date"}}},
        )
    )
    assert [(each.type, each.nullable, each.metadata == AS_JSON) for each in found.values()] == [
        (pa.int64(), False, False),
        (pa.int64(), True, False),
        (pa.string(), True, False),
        (pa.string(), False, True),
        (pa.string(), True, False),
        (pa.date32(), True, False),
        (pa.string(), True, True),
        (pa.string(), True, True),
    ]


def test_pydantics_way_of_writing_a_schema_is_read() -> None:
    document = {
        "$defs": {"By": {"type": "object", "properties": {"age": {"type": "integer"}}}},
        "type": "object",
        "properties": {"by": {"anyOf": [{"$ref": "#/$defs/By"}, {"type": "null"}]}},
    }
    assert columns(document)["by"].type == pa.struct([pa.field("age", pa.int64())])


def test_avro_named_types_are_found_again() -> None:
    inner = {"type": "record", "name": "In", "namespace": "x", "fields": [{"name": "a", "type": "int"}]}
    fields = [{"name": "first", "type": inner}, {"name": "then", "type": ["null", "x.In"]}]
    found = columns({"type": "record", "name": "Out", "fields": fields}, "avro")
    assert found["then"].type == found["first"].type == pa.struct([pa.field("a", pa.int32(), nullable=False)])
    assert (found["first"].nullable, found["then"].nullable) == (False, True)


@pytest.mark.parametrize(
    ("names", "item"),
    [
        ({"name": "Order", "namespace": "com.x"}, {"name": "Item"}),
        ({"name": "com.x.Order", "namespace": "no"}, {"name": "Item", "namespace": "com.x"}),
        ({"name": "Order"}, {"name": "com.x.Item"}),
    ],
)
def test_avro_types_inherit_the_namespace_around_them(names: dict[str, str], item: dict[str, str]) -> None:
    detail = {"type": "enum", "name": "Detail", "symbols": ["A"]}
    fields = [{"name": "a", "type": detail}, {"name": "b", "type": "com.x.Detail"}]
    several = ["int", {"type": "record", **item, "fields": fields}]
    money = {"type": "fixed", "name": "Money", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
    members = [several, "com.x.Item", {"type": "array", "items": "com.x.Detail"}, money, "Money"]
    document = {"type": "record", **names, "fields": [{"name": f"c{n}", "type": t} for n, t in enumerate(members)]}
    fastavro.parse_schema(document)
    found = [each.type for each in columns(document, "avro").values()]
    of_item = pa.struct([pa.field("a", pa.string(), nullable=False), pa.field("b", pa.string(), nullable=False)])
    assert found[0] == pa.string()
    assert found[1] == of_item
    assert found[2].value_type == pa.string()
    assert found[3] == found[4] == pa.decimal128(9, 2)


def test_field_with_a_taken_name_gets_another() -> None:
    properties = {name: {"type": "string"} for name in ("key", "Timestamp", "day", "_raw", "x")}
    found = value_columns("json", json.dumps({"type": "object", "properties": properties}))
    assert list(found.sources) == ["value_key", "value_Timestamp", "value_day", "value__raw", "x"]
    assert found.sources["value_day"] == "day"


def test_table_takes_null_everywhere() -> None:
    found = value_columns("json", json.dumps(of({"type": "array", "items": {"type": "integer"}}, required=["c0"])))
    [field, *_] = table_fields(found)
    assert (field.nullable, field.type.value_field.nullable) == (True, True)


def test_typing_keeps_its_columns() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "12"})])
    assert Typing.of("json", "{}", schema).file_schema().equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("json", "{", "is no JSON"),
        ("json", "[]", "names no field at its top"),
        ("json", '{"type": "string"}', "names no field"),
        ("json", json.dumps(of({"$ref": "#/$defs/x"})), "leads to nothing in the schema"),
        ("json", json.dumps(of({"$ref": "https://x/y"})), "leads to nothing in the schema"),
        ("json", json.dumps(of({"$ref": "#/properties/c0"})), "leads in a circle"),
        ("json", json.dumps(of({"type": "string", "format": "decimal", "precision": 39})), "precision=39"),
        ("json", json.dumps({"type": "object", "properties": {"a": {}, "A": {}}}), "engines ignore case"),
        ("json", json.dumps(of(*[{"type": "string"}] * (COLUMNS_MAX + 1))), "more than 1000 fields"),
        ("avro", '"string"', "names no field"),
        ("avro", '{"type": "record", "name": "x", "fields": 5}', "no list of fields"),
        (
            "avro",
            '{"type": "record", "name": "x", "fields": [{"name": "a", "type": "com.x.No"}]}',
            "no type 'com.x.No'",
        ),
    ],
)
def test_schema_that_makes_no_columns_is_refused(kind: str, text: str, why: str) -> None:
    with pytest.raises(PenstockError, match=why) as caught:
        value_columns(kind, text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_schema_that_holds_itself_is_refused() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}}}
    with pytest.raises(PenstockError, match="deeper than 16 levels"):
        columns(tree)
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(PenstockError, match="deeper than 16 levels"):
        columns(node, "avro")
