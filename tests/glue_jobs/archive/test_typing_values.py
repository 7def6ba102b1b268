"""Columns that are made at once are those that are made one by one, whatever the values are."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock_spark.archive.typed_columns import Typing, table_fields, value_columns
from penstock_spark.archive.typing_values import ValueTyper

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
    },
}
TIMES = st.sampled_from(["2026-11-21T10:00:00Z", "2026-11-21T10:00:00.123456+01:00", "2026-11-21T10:00:00", "x"])
ANY = st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(allow_nan=False), st.text(max_size=3))
CELLS = {
    "a": st.integers(-(2**63), 2**63 - 1),
    "b": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "c": st.decimals(-999, 999, places=2).map(str) | st.sampled_from(["1e2", "1.234", "99999"]),
    "d": TIMES,
    "e": st.fixed_dictionaries({}, optional={"x": st.booleans() | st.none(), "y": ANY}),
    "f": st.lists(st.text(max_size=2) | st.none(), max_size=2),
    "g": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
    "h": ANY,
}
GOOD = st.fixed_dictionaries({"a": CELLS["a"]}, optional={name: CELLS[name] | st.none() for name in "bcdefgh"})
BAD = st.dictionaries(st.sampled_from("abcdefgh"), ANY | st.lists(ANY, max_size=2), max_size=8)


def typer() -> ValueTyper:
    text = json.dumps(DOCUMENT)
    schema = pa.schema([pa.field("value", pa.binary()), *table_fields(value_columns("json", text))])
    return ValueTyper(Typing.of("json", text, schema))


@given(st.lists(st.none() | GOOD | BAD | st.binary(max_size=5), max_size=8))
def test_a_batch_has_the_rows_that_its_values_have_alone(values: list[Any]) -> None:
    data = [each if each is None or isinstance(each, bytes) else json.dumps(each).encode() for each in values]
    whole, alone = typer(), typer()
    together = whole.add(pa.RecordBatch.from_pydict({"value": pa.array(data, pa.binary())}))
    apart = [alone.add(pa.RecordBatch.from_pydict({"value": pa.array([each], pa.binary())})) for each in data]
    assert together.to_pylist() == [row for each in apart for row in each.to_pylist()]
    assert whole.unfit == alone.unfit
    slow = typer()._one_by_one(data)
    assert [each.to_pylist() for each in slow] == [
        together.column(name).to_pylist() for name in together.schema.names[1:]
    ]


def test_missing_and_null_cells_of_lists_and_objects_stay_apart_from_empty_ones() -> None:
    cells: list[dict[str, Any]] = [{}, {"f": []}, {"f": None}, {"g": {}}, {"e": {"x": True}}]
    data = [json.dumps({"a": 1, **each}).encode() for each in cells]
    found = typer().add(pa.RecordBatch.from_pydict({"value": pa.array(data, pa.binary())})).to_pylist()
    assert [each["f"] for each in found] == [None, [], None, None, None]
    assert [each["g"] for each in found] == [None, None, None, [], None]
    assert [each["e"] for each in found] == [None, None, None, None, {"x": True}]
