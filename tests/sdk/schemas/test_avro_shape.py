"""A few bytes claim no endless work, whatever schema their producer has registered."""

from typing import Any
from unittest.mock import Mock, patch

import pytest

from penstock.errors import InvalidError
from penstock.schemas import AvroSerde
from penstock.schemas.avro_shape import avro_reader
from penstock.schemas.registry import Schema, SchemaReference
from penstock.schemas.serdes import parse_avro

CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "leaves", "type": {"type": "array", "items": "Tree"}}]}
MAP = {"type": "record", "name": "Map", "fields": [{"name": "by", "type": {"type": "map", "values": "Map"}}]}
IN_TURNS = {
    "type": "record",
    "name": "A",
    "fields": [
        {"name": "b", "type": {"type": "record", "name": "B", "fields": [{"name": "a", "type": ["null", "A"]}]}}
    ],
}


def nested(of_level: bytes, levels: int) -> bytes:
    return of_level * levels + b"\0" * (levels + 1)


@pytest.mark.parametrize(
    ("schema", "of_level"), [(CHAIN, b"\x02"), (TREE, b"\x02"), (MAP, b"\x02\x00"), (IN_TURNS, b"\x02")]
)
def test_value_of_many_levels_raises_and_ends_no_process(schema: dict[str, Any], of_level: bytes) -> None:
    """fastavro's compiled reader ends the process from some thousand levels on."""
    read = avro_reader(parse_avro(schema, ()))
    with pytest.raises(RecursionError):
        read(nested(of_level, 100_000), None)
    assert list(read(b"\0", None))


def test_serde_reads_a_schema_that_holds_itself_and_refuses_many_levels() -> None:
    serde = AvroSerde(CHAIN)
    value = {"next": {"next": {"next": None}}}
    assert serde.deserialize("orders", "value", serde.serialize("orders", "value", value)) == value
    with pytest.raises(RecursionError):  # a consumer tells it as any other garbage
        serde.deserialize("orders", "value", nested(b"\x02", 100_000)[: 100_000 + 1])


def test_type_that_is_used_twice_holds_nothing_and_is_read_as_quickly_as_ever() -> None:
    pair = {
        "type": "record",
        "name": "Pair",
        "fields": [
            {"name": "a", "type": {"type": "record", "name": "X", "fields": [{"name": "n", "type": "int"}]}},
            {"name": "b", "type": ["null", "X"]},
            {"name": "c", "type": {"type": "array", "items": "X"}},
        ],
    }
    in_python = Mock(side_effect=AssertionError("the slow one"))
    with patch("fastavro._read_py.schemaless_reader", in_python):
        read = avro_reader(parse_avro(pair, ()))
    assert read(b"\x02\x02\x04\x02\x06\x00", None) == {"a": {"n": 1}, "b": {"n": 2}, "c": [{"n": 3}]}


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "E", "fields": []},
        {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_array_whose_items_take_no_bytes_is_refused(items: Any) -> None:
    """Ten bytes could claim 2**62 of them."""
    field = {"name": "z", "type": ["null", {"type": "array", "items": items}]}
    with pytest.raises(InvalidError, match="items take no bytes"):
        parse_avro({"type": "record", "name": "R", "fields": [field]}, ())


def test_array_of_a_type_of_another_subject_that_takes_no_bytes_is_refused() -> None:
    empty = SchemaReference("p.E", Schema("AVRO", '{"type": "record", "name": "p.E", "fields": []}'))
    field = {"name": "z", "type": {"type": "array", "items": "p.E"}}
    with pytest.raises(InvalidError, match="items take no bytes"):
        parse_avro({"type": "record", "name": "R", "fields": [field]}, (empty,))


@pytest.mark.parametrize(
    "items",
    [["null", "int"], {"type": "map", "values": "null"}, {"type": "enum", "name": "S", "symbols": ["A"]}, "Tree"],
)
def test_other_arrays_are_taken(items: Any) -> None:
    fields = [{"name": "z", "type": {"type": "array", "items": items}}, {"name": "n", "type": "null"}]
    assert parse_avro({"type": "record", "name": "Tree", "fields": [{"name": "id", "type": "int"}, *fields]}, ())
