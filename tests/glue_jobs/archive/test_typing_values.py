"""Columns that are made at once are those that are made one by one, whatever the values are."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_spark.archive.typed_columns import Typing, table_fields, value_columns
from penstock_spark.archive.typing_values import ValueTyper, in_parts

DOCUMENT = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "number"},
        "c": {"type": "string", "format": "decimal", "precision": 5, "scale": 2},
        "d": {"type": "string", "format": "date-time"},
        "e": {"type": "object", "required": ["x"], "properties": {"x": {"type": "boolean"}}},
        "f": {"type": "array", "items": {"type": "string"}},
        "g": {"type": "object", "additionalProperties": {"type": "integer"}},
        "h": {},
        "i": {"type": "integer", "format": "int32"},
        "j": {"type": "string", "format": "time"},
        "k": {"type": "string", "format": "date"},
        "l": {"type": "string", "format": "decimal", "precision": 38, "scale": 2},
        "m": {"type": "boolean"},
        "n": {"type": "string"},
        "o": {"type": "array", "items": {"type": "integer"}},
    },
}
NAMES = "".join(DOCUMENT["properties"])
TIMES = st.sampled_from(
    [
        *("2026-11-21T10:00:00Z", "2026-11-21T10:00:00.123456+01:00", "2026-11-21T10:00:00", "x", "2026-11-21"),
        *("2026-11-21T10:00:00.1234567Z", "2026-11-21 10:00Z", "2026-11-21T10:00:00.123456000Z", "20261121T100000Z"),
        *("0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00", "0000-12-31T23:00:00-02:00", "0000-01-01"),
        *("12:00", "12:00:00Z", "12:00:00+02:00", "12:00:00.1234567", "12:00:00.123456000", "25:00", "24:00:00"),
        *("9999-12-31", "0001-01-01", "20261121", "2026-W01-1", "2026-11-21T10:00:00,5Z"),
    ]
)
DECIMALS = st.one_of(
    st.decimals(-999, 999, places=2).map(str),
    st.sampled_from(
        ["1e2", "1.234", "99999", "0e-9", "0.0000", "1_0", " 1", "NaN", "-0", ".5", "5.", ".", "", "1e-99999"]
    ),
    st.from_regex(r"[+-]?[0-9]{28,40}(\.[0-9]{0,3})?", fullmatch=True),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**64), 2**64),
)
EDGES = [2**31, 2**53, 2**53 + 1, 2**63, 2**64, 123456789012345678901]
WHOLE = st.integers(-(2**70), 2**70) | st.sampled_from([sign * edge for edge in EDGES for sign in (-1, 1)])
NUMBERS = st.one_of(
    WHOLE,
    WHOLE.map(float),
    st.integers(-9, 9).map(float),
    st.sampled_from([1.5, -2.9, 1e10 + 0.5, -0.0, 1e300]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
ANY = st.one_of(st.none(), NUMBERS, st.text(max_size=3))
INT64, INT32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
CELLS = {
    "a": INT64,
    "b": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "c": DECIMALS,
    "d": TIMES,
    "e": st.fixed_dictionaries({}, optional={"x": st.booleans() | st.none(), "y": ANY}),
    "f": st.lists(st.text(max_size=2) | st.none(), max_size=2),
    "g": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
    "h": ANY,
    "i": INT32,
    "j": TIMES,
    "k": TIMES,
    "l": DECIMALS,
    "m": st.booleans(),
    "n": st.text(max_size=3),
    "o": st.lists(INT64, max_size=3),
}
GOOD = st.fixed_dictionaries({"a": CELLS["a"]}, optional={name: CELLS[name] | st.none() for name in NAMES[1:]})
BAD = st.dictionaries(st.sampled_from(NAMES), ANY | st.lists(ANY, max_size=2), max_size=8)
ODD = {"a": NUMBERS, "b": NUMBERS, "i": NUMBERS, "m": NUMBERS, "n": NUMBERS, "o": st.lists(NUMBERS, max_size=3)}


def typer(document: dict[str, Any] = DOCUMENT) -> ValueTyper:
    text = json.dumps(document)
    schema = pa.schema([pa.field("value", pa.binary()), *table_fields(value_columns("json", text))])
    return ValueTyper(Typing.of("json", text, schema))


@given(st.lists(st.none() | GOOD | BAD | st.binary(max_size=5), max_size=8))
def test_a_batch_has_the_rows_that_its_values_have_alone(values: list[Any]) -> None:
    check(values)


@given(st.data())
def test_numbers_of_one_column_are_typed_by_themselves_whatever_their_neighbours_are(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*ODD]))
    cells = data.draw(st.lists(CELLS[name] | ODD[name], max_size=4))
    check([{"a": 1, name: cell} for cell in cells])


@given(st.data())
def test_texts_of_one_column_are_typed_by_themselves_whatever_their_neighbours_are(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from("cdjkl"))
    check([{"a": 1, name: cell} for cell in data.draw(st.lists(CELLS[name], max_size=4))])


def check(values: list[Any]) -> None:
    """The rows of a batch are those of each value alone, those of the slow way, and none has another number."""
    data = [each if each is None or isinstance(each, bytes) else json.dumps(each).encode() for each in values]
    whole, alone = typer(), typer()
    together = whole.add(pa.RecordBatch.from_pydict({"value": pa.array(data, pa.binary())}))
    apart = [alone.add(pa.RecordBatch.from_pydict({"value": pa.array([each], pa.binary())})) for each in data]
    assert together.to_pylist() == [row for each in apart for row in each.to_pylist()]
    assert whole.unfit == alone.unfit
    slow = typer()._one_by_one(data, data)
    assert [each.to_pylist() for each in slow] == [
        together.column(name).to_pylist() for name in together.schema.names[1:]
    ]
    for row, value in zip(together.to_pylist(), values, strict=True):
        if isinstance(value, dict) and row["_raw"] is None:
            for name in "ai":
                assert (row[name], type(value.get(name)) is bool) == (value.get(name), False)
            number = value.get("b")
            assert type(number) is not bool
            assert row["b"] == (float(number) if isinstance(number, int) and abs(number) >= 2**63 else number)


@pytest.mark.parametrize("value", [b'{"a": 1, "h": %b}' % (b"[" * 1_010 + b"]" * 1_010), b"[" * 1_020 + b"]" * 1_020])
def test_value_that_is_too_deep_to_be_told_is_raw_and_its_neighbours_are_typed(value: bytes) -> None:
    found = typer().add(pa.RecordBatch.from_pydict({"value": pa.array([b'{"a": 7}', value], pa.binary())})).to_pylist()
    assert [(each["a"], each["_raw"]) for each in found] == [(7, None), (None, value)]
    assert "RecursionError" in found[1]["_raw_reason"]


def test_compressed_values_come_in_parts_of_few_rows_and_others_at_once() -> None:
    small, large = b"\x03\x05" + bytes(1_000), b"\x03\x05" + bytes(100_000)
    cells = [small, None, b"{}", large, large, small, *[small] * 100]
    batch = pa.RecordBatch.from_pydict({"value": pa.array(cells, pa.binary())})
    parts = [each.column("value").to_pylist() for each in in_parts([batch, batch.slice(1, 2), batch.slice(0, 0)])]
    assert [cell for each in parts for cell in each] == [*cells, None, b"{}"]
    assert [len(each) for each in parts] == [3, 1, 1, 65, 36, 2, 0]


def test_column_that_is_wider_than_its_schema_takes_what_the_schema_takes() -> None:
    wide: dict[str, Any] = {"n": {"type": "integer"}, "d": {"type": "number", "format": "decimal", "precision": 9}}
    narrow = {"n": {"type": "integer", "format": "int32"}, "d": {**wide["d"], "precision": 3, "scale": 0}}
    wide["d"]["scale"] = 0
    schema = typer({"type": "object", "properties": wide})
    columns = pa.schema([pa.field(name, kind) for name, kind in schema._types.items()])
    found = ValueTyper(Typing.of("json", json.dumps({"type": "object", "properties": narrow}), columns))
    data = [b'{"n": 1, "d": "999"}', b'{"n": 2147483648}', b'{"d": "1000"}']
    for each, raw in zip(data, (None, *data[1:]), strict=True):
        row = found.add(pa.RecordBatch.from_pydict({"value": pa.array([each], pa.binary())})).to_pylist()[0]
        assert row["_raw"] == raw


def test_missing_and_null_cells_of_lists_and_objects_stay_apart_from_empty_ones() -> None:
    cells: list[dict[str, Any]] = [{}, {"f": []}, {"f": None}, {"g": {}}, {"e": {"x": True}}]
    data = [json.dumps({"a": 1, **each}).encode() for each in cells]
    found = typer().add(pa.RecordBatch.from_pydict({"value": pa.array(data, pa.binary())})).to_pylist()
    assert [each["f"] for each in found] == [None, [], None, None, None]
    assert [each["g"] for each in found] == [None, None, None, [], None]
    assert [each["e"] for each in found] == [None, None, None, None, {"x": True}]
