"""The three formats without a registry: round trips, what they refuse, and what garbage does."""

import json
import pickle
import sys
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptError, InvalidError, NotConfiguredError
from penstock.schemas import AvroSerde, ConfluentRegistry, JsonSerde, ProtobufSerde
from penstock.schemas.registry import Schema, SchemaReference
from penstock.schemas.serialization import Deserializers
from penstock_core.errors import ErrorCode
from tests.support.proto_messages import order_classes

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}
VALUE = {"id": 1, "note": None, "at": datetime(2026, 11, 21, tzinfo=UTC), "paid": Decimal("9.50"), "lines": ["a"]}
ID = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


def test_avro_gives_back_what_went_in() -> None:
    serde = AvroSerde(ORDER)
    assert serde.deserialize("orders", "value", serde.serialize("orders", "value", VALUE)) == VALUE


def test_avro_resolves_to_the_readers_schema() -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "int"}]}
    fields = [{"name": "id", "type": "long"}, {"name": "y", "type": "int", "default": 5}]
    reader = AvroSerde({"type": "record", "name": "Order", "fields": fields})
    reader._parsed, parsed = fastavro.parse_schema(old), reader._parsed
    data = reader.serialize("orders", "value", {"id": 1, "x": 2})
    reader._parsed = parsed
    assert reader._decode(data, reader._compile(Schema("AVRO", json.dumps(old)))) == {"id": 1, "y": 5}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({**VALUE, "id": "one"}, r"Order\.id"),
        ({**VALUE, "extra": 1}, "extra"),
        ({name: VALUE[name] for name in VALUE if name != "lines"}, "lines"),
        (5, "int"),
    ],
)
def test_avro_refuses_a_value_and_names_the_field(value: Any, why: str) -> None:
    with pytest.raises(InvalidError, match=f"value of a record for topic 'orders' breaks its schema.*{why}"):
        AvroSerde(ORDER).serialize("orders", "value", value)


def test_bytes_behind_an_avro_value_tell_of_another_schema() -> None:
    serde = AvroSerde(ORDER)
    data = serde.serialize("orders", "value", VALUE)
    with pytest.raises(ValueError, match="3 bytes follow"):
        serde.deserialize("orders", "value", data + b"abc")


@pytest.mark.parametrize("schema", [5, "{", {"type": "recordd", "name": "x"}, {"type": "record", "fields": []}])
def test_avro_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidError, match="schema"):
        AvroSerde(schema)


def test_avro_without_schema_and_registry_is_refused() -> None:
    with pytest.raises(InvalidError, match="give a schema, a registry, or both"):
        AvroSerde()


@pytest.mark.parametrize("schema", ["{", {"type": "objet"}, {"type": "object", "properties": 5}, {1, 2}])
def test_json_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidError, match="schema"):
        JsonSerde(schema)


@pytest.mark.parametrize("value", [{"id": "1"}, {}, [], None, 5])
def test_json_refuses_what_breaks_the_schema(value: Any) -> None:
    with pytest.raises(InvalidError, match=r"breaks its schema: .* at /"):
        JsonSerde(ID).serialize("orders", "value", value)


@pytest.mark.parametrize("value", [float("nan"), {"at": datetime(2026, 1, 1, tzinfo=UTC)}, {b"k": 1}])
def test_json_refuses_what_json_cannot_say(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        JsonSerde().serialize("orders", "value", value)


def test_json_value_that_was_written_otherwise_is_corrupt() -> None:
    with pytest.raises(CorruptError, match='"id" is a required property'):
        JsonSerde(ID).deserialize("orders", "value", b"{}")


def test_dump_and_load_make_objects_of_values() -> None:
    for serde in (
        JsonSerde(ID, dump=lambda order: {"id": order}, load=lambda found: found["id"]),
        AvroSerde(
            {"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}]},
            dump=lambda order: {"id": order},
            load=lambda found: found["id"],
        ),
    ):
        assert serde.deserialize("orders", "value", serde.serialize("orders", "value", 7)) == 7


def test_protobuf_round_trip_and_what_it_refuses() -> None:
    order = order_classes()["shop.Order"]
    serde = ProtobufSerde(order)
    message = order(id=7)
    assert serde.deserialize("orders", "value", serde.serialize("orders", "value", message)) == message
    with pytest.raises(InvalidError, match="is of type dict: give a Order"):
        serde.serialize("orders", "value", {"id": 7})
    wrongs: list[Any] = [dict, 5, message]
    for wrong in wrongs:
        with pytest.raises(InvalidError, match="give a class that protoc has generated"):
            ProtobufSerde(wrong)


@pytest.mark.parametrize(
    "options", [{"registry": "http://x"}, {"subjects": "subject"}, {"registers": 1}, {"dump": 5}, {"load": "x"}]
)
def test_option_that_is_wrong_is_refused(options: dict[str, Any]) -> None:
    for made in (lambda: JsonSerde(ID, **options), lambda: AvroSerde(ORDER, **options)):
        with pytest.raises(InvalidError):
            made()


@pytest.mark.parametrize(("package", "extra"), [("fastavro", "avro"), ("jsonschema_rs", "jsonschema")])
def test_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NotConfiguredError, match=rf"pip install 'penstock\[{extra}\]'"):
        AvroSerde(ORDER) if extra == "avro" else JsonSerde(ID)


def test_serde_travels_to_another_process() -> None:
    json_serde, avro_serde = (pickle.loads(pickle.dumps(each)) for each in (JsonSerde(ID), AvroSerde(ORDER)))
    with pytest.raises(CorruptError):
        json_serde.deserialize("orders", "value", b"{}")
    assert avro_serde.serialize("orders", "value", VALUE) == AvroSerde(ORDER).serialize("orders", "value", VALUE)


@given(st.binary(max_size=64))
def test_garbage_is_read_or_corrupt_and_nothing_else(data: bytes) -> None:
    for serde in (AvroSerde(ORDER), JsonSerde(ID), ProtobufSerde(order_classes()["shop.Order"])):
        with suppress(CorruptError):
            Deserializers(serde, None).deserialize("orders", data, None)


def test_deep_json_is_corrupt() -> None:
    with pytest.raises(CorruptError, match="RecursionError"):
        Deserializers(JsonSerde(), None).deserialize("orders", b"[" * 100_000, None)


# What Avro would change, and schemas that name others.


def field_of(kind: Any) -> AvroSerde:
    return AvroSerde({"type": "record", "name": "O", "fields": [{"name": "m", "type": kind}]})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.9),
        ("int", True),
        ("int", 2**40),
        ("int", -(2**31) - 1),
        ("long", 1.0),
        ("boolean", 7),
        ("float", 1e300),
        ("float", -1e39),
        ("double", True),
        (["null", "int"], 2**40),
        (["null", "float"], 1e300),
        ({"type": "array", "items": "int"}, [1, 1.5]),
        ({"type": "array", "items": "float"}, [1.0, 1e300]),
        ({"type": "map", "values": "float"}, {"k": 1e300}),
        ({"type": "record", "name": "I", "fields": [{"name": "n", "type": "float"}]}, {"n": 10**40}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("1.234")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("123456.78")),
    ],
)
def test_avro_refuses_what_it_would_change_and_names_the_field(kind: Any, value: Any) -> None:
    with pytest.raises(InvalidError, match=r"value of a record for topic 'orders' breaks its schema: O\.m"):
        field_of(kind).serialize("orders", "value", {"m": value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 2**31 - 1),
        ("long", -(2**63)),
        ("float", 1.5),
        ("float", float("inf")),
        ("double", 1e300),
        ("double", float("-inf")),
        (["float", "null"], None),
        ("bytes", b"\0\0\x80\x7f"),
        ({"type": "map", "values": ["null", "float"]}, {"k": float("-inf"), "l": None}),
    ],
)
def test_avro_writes_what_it_can_say(kind: Any, value: Any) -> None:
    serde = field_of(kind)
    assert serde.deserialize("orders", "value", serde.serialize("orders", "value", {"m": value})) == {"m": value}


def test_avro_names_the_place_of_a_float_without_room_and_of_a_value_without_a_field() -> None:
    with pytest.raises(InvalidError, match=r"O\.m\[1\] is 1e\+300, and the schema says 'float': say 'double' there"):
        field_of({"type": "array", "items": "float"}).serialize("orders", "value", {"m": [1.0, 1e300]})
    with pytest.raises(InvalidError, match="breaks its schema: the value is 'x' of type str"):
        AvroSerde('"int"').serialize("orders", "value", "x")


ITEM = SchemaReference(
    "Item", Schema("AVRO", '{"type": "record", "name": "Item", "fields": [{"name": "a", "type": "int"}]}')
)
TOPS: list[tuple[Any, bytes, Any]] = [
    ("Item", b"\x02", {"a": 1}),
    (["null", "Item"], b"\x02\x02", {"a": 1}),
    (["null", "Item"], b"\x00", None),
    ({"type": "array", "items": "Item"}, b"\x02\x02\x00", [{"a": 1}]),
    ({"type": "map", "values": "Item"}, b"\x02\x02k\x02\x00", {"k": {"a": 1}}),
    ({"type": "record", "name": "Order", "fields": [{"name": "i", "type": "Item"}]}, b"\x02", {"i": {"a": 1}}),
]


class Storing(ConfluentRegistry):
    """A registry with one schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__("http://registry")
        self._stored = schema

    def _find_schema(self, schema_id: Any) -> Schema:
        return self._stored


@pytest.mark.parametrize(("top", "data", "value"), TOPS)
def test_avro_reads_a_writers_schema_that_names_others_at_its_top(top: Any, data: bytes, value: Any) -> None:
    serde = AvroSerde(registry=Storing(Schema("AVRO", json.dumps(top), (ITEM,))))
    assert serde.deserialize("orders", "value", b"\0\0\0\0\7" + data) == value
    travelled = pickle.loads(pickle.dumps(serde))
    assert travelled.deserialize("orders", "value", b"\0\0\0\0\7" + data) == value


@pytest.mark.parametrize(("top", "data", "value"), TOPS)
def test_avro_resolves_such_a_schema_to_the_readers(top: Any, data: bytes, value: Any) -> None:
    own = {
        "type": "record",
        "name": "Item",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "int", "default": 7}],
    }
    reader = json.loads(json.dumps(top).replace('"Item"', json.dumps(own)))
    serde = AvroSerde(reader, registry=Storing(Schema("AVRO", json.dumps(top), (ITEM,))))
    wanted = json.loads(json.dumps(value).replace('"a": 1', '"a": 1, "b": 7'))
    assert serde.deserialize("orders", "value", b"\0\0\0\0\7" + data) == wanted
    with pytest.raises(CorruptError):
        Deserializers(serde, None).deserialize("orders", b"\0\0\0\0\7" + data + b"more", None)


@pytest.mark.parametrize("text", ["{", '{"type": "array", "items": "Unknown"}', '"Unknown"', "[" * 100_000])
def test_schema_that_the_library_cannot_parse_is_no_fault_of_the_record(text: str) -> None:
    for serde in (
        AvroSerde(registry=Storing(Schema("AVRO", text))),
        JsonSerde(registry=Storing(Schema("JSON", text.replace("array", "arrray")))),
    ):
        with pytest.raises(InvalidError) as caught:
            Deserializers(serde, None).deserialize_waiting("orders", b"\0\0\0\0\7{}", None)
        assert caught.value.code is ErrorCode.INVALID_CONFIG
