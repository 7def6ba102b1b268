"""Values as typed columns. Runs on executors, batch by batch.

Each value is decoded by itself, and its fields are checked strictly: a text is no number, and a number no text. A value
that does not fit has no typed column at all: `_raw` has its bytes, and `_raw_reason` names the field and says why. So a
row is either whole or raw. A tombstone has neither.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from itertools import accumulate
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.schemas.avro_shape import avro_reader
from penstock.schemas.serdes import parse_avro
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KIB
from penstock_spark.archive.protobuf_messages import message_reader
from penstock_spark.archive.typed_columns import AS_JSON, RAW, RAW_REASON, Typing, value_columns

_REASON_LENGTH_MAX = 500
PARTITION_BYTES_MAX = 500  # the footer of a file has its one value, which Parquet leaves out if it is long
_FLOAT_DIGITS = 15  # a decimal of so many digits survives its way through a float
_FLOAT_WHOLE = 2**53  # a whole float up to here was sent as this number, and not rounded on its way
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)  # rounds no decimal that a value can hold
_DIGITS_MAX = 38  # of a decimal
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")  # digits behind the microseconds
_FIRST_DAY, _LAST_DAY = "0001-01-02", "9999-12-31"  # Arrow reads times beyond, and Python's datetime does not have them

_COMPRESSED = b"\x03\x05"  # how a value in AWS Glue's format begins that zlib has compressed
_PART_BYTES = 64 * KIB  # as stored: zlib makes a thousand times as many of them

Fit = Callable[[Any], Any]
Framer = tuple[str, Callable[[bytes, bytes], bytes]]  # a header's name, and what takes the header and the value


def in_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, those with compressed values in parts of few rows: one batch could fill gigabytes."""
    for batch in batches:
        values = batch.column("value")
        if not pc.any(pc.starts_with(values, _COMPRESSED)).as_py():
            yield batch
            continue
        ends = np.cumsum(pc.fill_null(pc.binary_length(values), 0).to_numpy(), dtype=np.int64)
        start, done = 0, 0
        while start < batch.num_rows:
            end = max(start + 1, int(ends.searchsorted(done + _PART_BYTES, "right")))
            yield batch.slice(start, end - start)
            start, done = end, int(ends[end - 1])


class _MisfitError(Exception):
    """A value that its column cannot hold."""


class ValueTyper:
    """Makes the typed columns of batches of records, in the order and with the types of a table's files.

    `decode` reads a value of a registry's format, `framer` puts what a header says in front (registered_schemas.py).
    `unfit` counts the values that did not fit. Columns of the table that the schema no longer has are null.
    """

    def __init__(self, typing: Typing, decode: Fit | None = None, framer: Framer | None = None) -> None:
        self._framer = framer
        columns = value_columns(typing.kind, typing.schema)
        self._names = typing.file_schema().names
        self._types = {each.name: _plain(each.type) for each in typing.file_schema()}
        self._typed = [each.name for each in columns.fields]
        self._decode = decode or _decoder(typing)
        self._sources = [columns.sources[name] for name in self._typed]
        self._fits = [_fit_field(each) for each in columns.fields]
        self._makes = [_make_field(each, self._types[each.name]) for each in columns.fields]
        for number, name in enumerate(self._typed):
            if name in typing.partition_by and pa.types.is_string(self._types[name]):
                self._fits[number] = _fit_partition(name, self._fits[number])
                self._makes[number] = _make_partition(self._makes[number])
        self.unfit = 0

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its typed columns, `_raw` and `_raw_reason`.

        Whole columns are made at once. If one value of the batch does not fit, each value is looked at by itself.
        """
        values = batch.column("value").to_pylist()
        framed = self._framed(batch, values)
        try:
            made = self._at_once(framed)
        except Exception:  # an edge: a column that cannot be made at once says little about the value in its way
            made = self._one_by_one(values, framed)
        typed = dict(zip([*self._typed, RAW, RAW_REASON], made, strict=True))
        there = {**typed, **dict(zip(batch.schema.names, batch.columns, strict=True))}
        found = [there[name] if name in there else pa.nulls(len(values), self._types[name]) for name in self._names]
        return pa.RecordBatch.from_arrays(found, names=self._names)

    def _framed(self, batch: pa.RecordBatch, values: list[bytes | None]) -> list[Any]:
        """The values, those whose schema a header names with that header in front; or an error in place of them."""
        if self._framer is None or "headers" not in batch.schema.names:
            return values
        name, frame = self._framer
        headers = batch.column("headers")
        if not pc.any(pc.equal(pc.struct_field(headers.flatten(), "key"), name)).as_py():
            return values
        found: list[Any] = []
        for value, among in zip(values, headers.to_pylist(), strict=True):
            header = next((each["value"] for each in among or () if each["key"] == name), None)
            try:
                found.append(value if value is None or header is None else frame(header, value))
            except PenstockError as error:
                found.append(error)
        return found

    def _at_once(self, values: list[bytes | None]) -> list[pa.Array]:
        decode = self._decode
        rows = [None if value is None else decode(value) for value in values]
        nulls = _check_kind(rows, dict)
        made = [
            make([None if row is None else row.get(source) for row in rows], nulls)
            for make, source in zip(self._makes, self._sources, strict=True)
        ]
        return [*made, pa.nulls(len(values), pa.binary()), pa.nulls(len(values), pa.string())]

    def _one_by_one(self, values: list[bytes | None], framed: list[Any]) -> list[pa.Array]:
        columns: list[list[Any]] = [[] for _ in self._fits]
        raw: list[bytes | None] = []
        reasons: list[str | None] = []
        nothing = [None] * len(self._fits)
        for value, given in zip(values, framed, strict=True):
            reason, row = None, nothing
            if value is not None:
                try:
                    row = self._row(given)
                except _MisfitError as error:
                    reason = str(error)[:_REASON_LENGTH_MAX]
            self.unfit += reason is not None
            raw.append(None if reason is None else value)
            reasons.append(reason)
            for column, cell in zip(columns, row, strict=True):
                column.append(cell)
        made = [pa.array(cells, self._types[name]) for cells, name in zip(columns, self._typed, strict=True)]
        return [*made, pa.array(raw, pa.binary()), pa.array(reasons, pa.string())]

    def _row(self, value: bytes | PenstockError) -> list[Any]:
        try:
            if isinstance(value, PenstockError):
                raise value
            found = self._decode(value)
            if not isinstance(found, dict):
                raise _MisfitError(f"the value is {_kind(found)}, and not an object")
            get = found.get
            return [fit(get(source)) for source, fit in zip(self._sources, self._fits, strict=True)]
        except _MisfitError:
            raise
        except Exception as error:  # an edge: what a stranger's bytes do to a decoder, or their depth to JSON text
            if isinstance(error, PenstockError) and error.code is not ErrorCode.CORRUPT_BATCH:
                raise  # it is a registry's, and says nothing about the value
            raise _MisfitError(f"the value cannot be decoded: {type(error).__name__}: {error!s:.200}") from error


def _decoder(typing: Typing) -> Fit:
    if typing.kind == "protobuf":
        return message_reader(typing.schema)
    if typing.kind == "avro":
        return _avro_decoder(typing.schema)
    import orjson

    loads: Fit = orjson.loads
    return loads


def _avro_decoder(schema: str) -> Fit:
    read = avro_reader(parse_avro(json.loads(schema), ()))
    return lambda data: read(data, None)


# Columns at once. Each function takes a column's cells, and the number of rows in which there is no object to have one.

Make = Callable[[list[Any], int], pa.Array]


def _check_kind(cells: list[Any], kind: type[Any]) -> int:
    """The number of nulls. Raises _MisfitError if a cell is of another kind."""
    nulls = cells.count(None)
    if nulls + sum(type(each) is kind for each in cells) != len(cells):
        raise _MisfitError(f"a cell is no {kind.__name__}")
    return nulls


def _make_field(field: pa.Field, to: pa.DataType) -> Make:
    make = _make_type(field, to)

    def checked(cells: list[Any], absent: int) -> pa.Array:
        if not field.nullable and cells.count(None) > absent:
            raise _MisfitError(field.name)
        return make(cells)

    return checked


def _make_type(field: pa.Field, to: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    """A function that makes the column. It looks at the kinds of all cells first, for Arrow makes 1 of 1.5 and of True.

    Cells of another kind, and texts that Arrow cannot read, are fitted one by one.
    """
    kind, is_text = field.type, field.metadata == AS_JSON
    if not is_text and pa.types.is_struct(kind):
        return _make_struct(kind, to)
    if not is_text and pa.types.is_list(kind):
        return _make_list(kind, to)
    fit = _fit_json if is_text else _fit_type(kind)
    plain = frozenset() if is_text else _plain_kinds(kind)

    def make(cells: list[Any]) -> pa.Array:
        if plain and plain.issuperset(map(type, cells)):
            with suppress(pa.ArrowInvalid, OverflowError):
                return _at_once(cells, kind).cast(to)
        return pa.array([None if each is None else fit(each) for each in cells], to)

    return make


def _plain_kinds(kind: pa.DataType) -> frozenset[type[Any]]:
    """The kinds of cells that Arrow makes a column of as `_fit_type` does; none for a map and a time."""
    for is_kind, kinds in (
        (pa.types.is_integer, (int,)),
        (pa.types.is_floating, (int, float)),
        (pa.types.is_boolean, (bool,)),
        (pa.types.is_string, (str,)),
        (pa.types.is_binary, (bytes,)),
        (pa.types.is_timestamp, (str,)),
        (pa.types.is_date, (str,)),
        (pa.types.is_decimal, (str,)),
    ):
        if is_kind(kind):
            return frozenset((*kinds, type(None)))
    return frozenset()


def _at_once(cells: list[Any], kind: pa.DataType) -> pa.Array:
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind)):
        return pa.array(cells, kind)
    texts = pa.array(cells, pa.string())
    if texts.null_count == len(texts):
        return texts.cast(kind)
    if pa.types.is_decimal(kind):  # Arrow's arithmetic overflows beyond 38 digits, and says nothing
        longest = pc.max(pc.binary_length(texts)).as_py()
        is_odd = longest + kind.scale > _DIGITS_MAX or pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py()
    else:
        ends = pc.min_max(texts).as_py()
        is_odd = ends["min"] < _FIRST_DAY or ends["max"] >= _LAST_DAY
    if is_odd:
        raise OverflowError
    return texts.cast(kind)


def _make_struct(kind: pa.DataType, to: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    own = {each.name: each for each in kind}
    makes = [(each, _make_field(own[each.name], each.type) if each.name in own else None) for each in to]

    def make(cells: list[Any]) -> pa.Array:
        nulls = _check_kind(cells, dict)
        made = [
            pa.nulls(len(cells), inner.type)
            if each is None
            else each([None if cell is None else cell.get(inner.name) for cell in cells], nulls)
            for inner, each in makes
        ]
        return pa.StructArray.from_arrays(made, fields=[*to], mask=pa.array([cell is None for cell in cells]))

    return make


def _make_list(kind: pa.DataType, to: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    of_element = _make_field(kind.value_field, to.value_type)

    def make(cells: list[Any]) -> pa.Array:
        _check_kind(cells, list)
        flat = [each for cell in cells if cell for each in cell]
        ends = list(accumulate(0 if cell is None else len(cell) for cell in cells))
        offsets = pa.array([0, *ends], pa.int32())
        mask = pa.array([cell is None for cell in cells])
        return pa.ListArray.from_arrays(offsets, of_element(flat, 0), type=to, mask=mask)

    return make


def _make_partition(make: Make) -> Make:
    def checked(cells: list[Any], absent: int) -> pa.Array:
        made = make(cells, absent)
        if (pc.max(pc.binary_length(made)).as_py() or 0) > PARTITION_BYTES_MAX:
            raise _MisfitError("a partition's text")
        return made

    return checked


# Values one by one.


def _fit_partition(name: str, fit: Fit) -> Fit:
    def checked(value: Any) -> Any:
        found = fit(value)
        if found is not None and len(found.encode()) > PARTITION_BYTES_MAX:
            raise _MisfitError(f"{name}: {len(found.encode())} bytes, and a partition's text has {PARTITION_BYTES_MAX}")
        return found

    return checked


def _fit_field(field: pa.Field) -> Fit:
    """A function that returns the cell of a value, or raises _MisfitError with the field's name in front."""
    fit = _fit_json if field.metadata == AS_JSON else _fit_type(field.type)
    name, nullable = field.name, field.nullable

    def checked(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise _MisfitError(f"{name}: null or missing, and the schema requires it")
        try:
            return fit(value)
        except _MisfitError as error:
            raise _MisfitError(f"{name}: {error}") from None

    return checked


def _fit_type(kind: pa.DataType) -> Fit:
    if pa.types.is_struct(kind):
        fits = [(each.name, _fit_field(each)) for each in kind]
        return lambda value: {name: fit(_a(dict, value).get(name)) for name, fit in fits}
    if pa.types.is_list(kind):
        of_element = _fit_field(kind.value_field)
        return lambda value: [of_element(each) for each in _a(list, value)]
    if pa.types.is_map(kind):
        of_item = _fit_field(kind.item_field)
        return lambda value: [(name, of_item(each)) for name, each in _a(dict, value).items()]
    if pa.types.is_integer(kind):
        return _fit_integer(2 ** (kind.bit_width - 1))
    if pa.types.is_decimal(kind):
        return _fit_decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _fit_timestamp if kind.tz else lambda value: _a(datetime, value)
    simple: dict[pa.DataType, Fit] = {
        pa.bool_(): lambda value: _a(bool, value),
        pa.float64(): _fit_float,
        pa.float32(): _fit_float,
        pa.string(): lambda value: str(value) if isinstance(value, UUID) else _a(str, value),
        pa.binary(): lambda value: _a(bytes, value),
        pa.date32(): lambda value: _parsed(date, value),
        pa.time64("us"): _fit_time,
    }
    return simple[kind]


def _a(kind: type[Any], value: Any) -> Any:
    if type(value) is kind:
        return value
    raise _MisfitError(f"{_kind(value)}, and not {kind.__name__}")


def _fit_integer(bound: int) -> Fit:
    def fit(value: Any) -> int:
        number = int(value) if type(value) is float and value.is_integer() and abs(value) <= _FLOAT_WHOLE else value
        if type(number) is not int:
            raise _MisfitError(f"{_kind(value)}, and not a whole number")
        if not -bound <= number < bound:
            raise _MisfitError(f"{value!s:.40} does not fit into {bound.bit_length()} bits")
        return number

    return fit


def _fit_float(value: Any) -> float:
    if type(value) is float:
        return value
    number = float(_a(int, value))
    if int(number) != value:
        raise _MisfitError(f"{value!s:.40} has more digits than a floating-point number")
    return number


def _fit_decimal(precision: int, scale: int) -> Fit:
    unit = Decimal(1).scaleb(-scale)

    def fit(value: Any) -> Decimal:
        if type(value) is float:
            number = Decimal(repr(value))
            if len(number.as_tuple().digits) > _FLOAT_DIGITS:
                raise _MisfitError(f"{value!r} has more than {_FLOAT_DIGITS} digits: send it as a string")
        elif type(value) in (int, str, Decimal):
            try:
                number = Decimal(value)
            except InvalidOperation:
                raise _MisfitError(f"{value!r:.40} is no decimal") from None
        else:
            raise _MisfitError(f"{_kind(value)}, and not a decimal")
        exponent = number.as_tuple().exponent
        if not isinstance(exponent, int):
            raise _MisfitError(f"{value!r:.40} is no finite number")
        if number and (-number.normalize(_EXACT).as_tuple().exponent > scale or number.adjusted() >= precision - scale):  # type: ignore[operator]  # it is finite
            raise _MisfitError(f"{value!s:.40} does not fit into decimal({precision},{scale})")
        return number.quantize(unit, context=_EXACT)  # Arrow takes no zeros beyond the scale

    return fit


def _fit_timestamp(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else _parsed(datetime, value)
    if found.tzinfo is None:
        raise _MisfitError(f"{value!s:.40} names no time zone: add Z or an offset")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise _MisfitError(f"{value!s:.40} lies outside of the years 1 to 9999 in UTC") from None


def _fit_time(value: Any) -> time:
    found: time = _parsed(time, value)
    if found.utcoffset():
        raise _MisfitError(f"{value!s:.40} has an offset, which a time cannot keep: send it in UTC, or as a date-time")
    return found.replace(tzinfo=None)


def _parsed(kind: type[Any], value: Any) -> Any:
    if type(value) is kind:
        return value
    text = _a(str, value)
    try:
        found = kind.fromisoformat(text)
    except ValueError:
        raise _MisfitError(f"{text!r:.40} is no {kind.__name__} of ISO 8601") from None
    if _FINER.search(text):
        raise _MisfitError(f"{text!r:.40} has digits behind the microseconds, which the column cannot keep")
    return found


def _fit_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without Arrow's large forms, which pyiceberg names and a file of bounded groups does not need."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_plain(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), kind.item_field.with_type(_plain(kind.item_type)))
    plain: dict[pa.DataType, pa.DataType] = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return plain.get(kind, kind)


def _kind(value: Any) -> str:
    text = json.dumps(value, default=str) if not isinstance(value, bytes) else repr(value)
    return f"{type(value).__name__} {text:.40}"
