"""The three formats without a registry: round trips, what they refuse, and what garbage does."""

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
from penstock.schemas import AvroSerde, JsonSerde, ProtobufSerde
from penstock.schemas.serialization import Deserializers
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
    assert reader._decode(data, fastavro.parse_schema(old)) == {"id": 1, "y": 5}


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
