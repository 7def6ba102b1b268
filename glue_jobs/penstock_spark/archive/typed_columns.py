"""The columns of an archived table: its own, and those that a schema gives it, from JSON Schema, Avro and Protobuf.

A column is a `pyarrow.Field`. It is not nullable if the schema requires a value; the table's own columns are nullable
all the same, because older rows lack them. A field that no one type describes is a column of JSON text: its metadata
say so. So is an object whose fields the schema does not name.

    JSON Schema: integer -> int64 (format int32: int32), number -> double, string -> string; by format: date-time to
                 microseconds in UTC, date, time, decimal (with precision and scale); array, object, map
    Avro:        its primitives and logical types; enum and uuid -> string, union with null -> nullable
    Protobuf:    protobuf_messages.py
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import pyarrow as pa

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.decode.decoding import kafka_schema

TIMESTAMP_ID = 6
_ELEMENT_ID, _HEADER_KEY_ID, _HEADER_VALUE_ID = 9, 10, 11


def _numbered(field: pa.Field, field_id: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(field_id)})


def _with_ids(field: pa.Field, field_id: int) -> pa.Field:
    if field.name != "headers":
        return _numbered(field, field_id)
    key, value = field.type.value_type
    header = pa.struct([_numbered(key, _HEADER_KEY_ID), _numbered(value, _HEADER_VALUE_ID)])
    return _numbered(pa.field("headers", pa.list_(_numbered(pa.field("element", header), _ELEMENT_ID))), field_id)


# The columns of the data source. An id must never change: years of files refer to it. A new column gets the next id.
ARCHIVE_SCHEMA = kafka_schema(with_headers=True)
FILE_SCHEMA = pa.schema([_with_ids(field, number) for number, field in enumerate(ARCHIVE_SCHEMA, start=1)])

FORMATS = ("json", "avro", "protobuf")  # of files
REGISTERED = "registry"
SCHEMA_BYTES_MAX = 1_000_000
RAW, RAW_REASON = "_raw", "_raw_reason"
AS_JSON = {b"penstock.json": b"1"}
COLUMNS_MAX = 1_000  # nested ones included; engines plan badly beyond
DEPTH_MAX = 16
_UTC = pa.timestamp("us", "UTC")
_NO_PARTITIONS = ("offset", RAW, RAW_REASON)
_OF_TIME = re.compile(r"(day|hour)\((.+)\)")
_TAKEN = {*FILE_SCHEMA.names, RAW, RAW_REASON, "day"}  # the partitions of tables are named day
_DECIMAL = (38, 9)

_JSON_TYPES: Mapping[str, pa.DataType] = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_JSON_FORMATS: Mapping[str, pa.DataType] = {"date-time": _UTC, "date": pa.date32(), "time": pa.time64("us")}
_AVRO_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_AVRO_LOGICAL: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": _UTC,
    "timestamp-micros": _UTC,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueColumns:
    """The columns of a schema.

    `sources` has the field of the value by column, `aliases` older names of a column, `numbers` those of Protobuf.
    """

    fields: tuple[pa.Field, ...]
    sources: Mapping[str, str]
    aliases: Mapping[str, tuple[str, ...]]
    numbers: Mapping[str, int] = dataclass_field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Typing:
    """The schema by which a plan types values: its kind, of `FORMATS` or `REGISTERED`, its text, the files' columns.

    A file has one day, and one value of each column of `partition_by`; `day(column)` has one day of a time.
    """

    kind: str
    schema: str
    columns: str  # base64 of Arrow's form of a schema
    partition_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: str, schema: str, file_schema: pa.Schema, partition_by: Sequence[str] = ()) -> "Typing":
        """The typing for files with these columns. Raises INVALID_CONFIG for a column that makes no partitions."""
        for name in partition_by:
            if not may_partition(file_schema, name):
                raise _invalid(
                    f"--partition-by {name!r:.100}: name a column of the table, at its top, that is a string, a whole "
                    "number, a boolean or a date; or give day(column) or hour(column) of one with times"
                )
        sources = [parse_partition(each)[1] for each in partition_by]
        twice = next((each for each in sources if sources.count(each) > 1), None)
        if twice is not None:
            raise _invalid(f"--partition-by names column {twice!r:.100} twice: give it once, by its day or its hour")
        columns = base64.b64encode(file_schema.serialize()).decode()
        return cls(kind=kind, schema=schema, columns=columns, partition_by=tuple(partition_by))

    def file_schema(self) -> pa.Schema:
        """The columns of the files, each with its field id."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))


def parse_partition(name: str) -> tuple[str, str]:
    """The transform, as Iceberg names it, and the column of `country`, `day(at)` or `hour(at)`."""
    found = _OF_TIME.fullmatch(name)
    return ("identity", name) if found is None else (found[1], found[2])


def may_partition(schema: pa.Schema, name: str) -> bool:
    """True if files can have one value of that column, or of its day or hour."""
    transform, column = parse_partition(name)
    kind = schema.field(column).type if column in schema.names and column not in _NO_PARTITIONS else pa.null()
    types = pa.types
    if transform != "identity":
        return bool(types.is_timestamp(kind)) and column not in FILE_SCHEMA.names
    kinds = types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_date
    return any(is_kind(kind) for is_kind in kinds)


def value_columns(kind: str, text: str) -> ValueColumns:
    """The columns of a schema, of one of the `FORMATS` or `REGISTERED`. Raises INVALID_CONFIG with the field."""
    fields: dict[str, pa.Field] = {}
    sources: dict[str, str] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    numbers: dict[str, int] = {}
    seen: dict[str, str] = {}
    for field, others, number in _found_fields(kind, text):
        name = f"value_{field.name}" if field.name.lower() in {each.lower() for each in _TAKEN} else field.name
        if name.lower() in seen:
            raise _invalid(f"fields {seen[name.lower()]!r} and {field.name!r} make one column: engines ignore case")
        seen[name.lower()] = field.name
        fields[name], sources[name], aliases[name] = field.with_name(name), field.name, others
        if number is not None:
            numbers[name] = number
    if not fields:
        raise _invalid("the schema names no field at its top: give an object with properties, a record, or a message")
    return ValueColumns(fields=tuple(fields.values()), sources=sources, aliases=aliases, numbers=numbers)


def _found_fields(kind: str, text: str) -> Iterator[tuple[pa.Field, tuple[str, ...], int | None]]:
    if kind == REGISTERED:
        registered = json.loads(text)
        kind, text = registered["kind"], registered["schema"]
    budget = _Budget()
    if kind == "protobuf":
        from penstock_spark.archive.protobuf_messages import message_fields

        yield from ((each, (), number) for each, number in message_fields(text, budget, AS_JSON))
        return
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the schema is no JSON: {error!s:.200}") from error
    found = _json_fields(document, budget) if kind == "json" else _avro_fields(document, budget)
    yield from ((each, others, None) for each, others in found)


def table_fields(columns: ValueColumns) -> list[pa.Field]:
    """The columns as the table has them: nullable, and those of what did not fit behind them."""
    return [*map(_nullable, columns.fields), pa.field(RAW, pa.binary()), pa.field(RAW_REASON, pa.string())]


@dataclass(slots=True)
class _Budget:
    columns: int = 0
    depth: int = 0

    def deeper(self, name: str) -> "_Budget":
        self.columns += 1
        if self.columns > COLUMNS_MAX:
            raise _invalid(f"the schema has more than {COLUMNS_MAX} fields: split the topic, or leave some out")
        if self.depth >= DEPTH_MAX:
            raise _invalid(f"field {name!r:.100} lies deeper than {DEPTH_MAX} levels: a schema may not hold itself")
        return self

    def inside(self) -> "_Inside":
        return _Inside(self)


class _Inside:
    def __init__(self, budget: _Budget) -> None:
        self._budget = budget

    def __enter__(self) -> None:
        self._budget.depth += 1

    def __exit__(self, *_: object) -> None:
        self._budget.depth -= 1


_Found = list[tuple[pa.Field, tuple[str, ...]]]


def _json_fields(root: Any, budget: _Budget) -> _Found:
    schema = _resolved(root, root)
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return []
    required = schema.get("required") or ()
    found: _Found = []
    for name, each in schema["properties"].items():
        field = _json_field(name, each, root, is_required=name in required, budget=budget)
        others = each.get("aliases", ()) if isinstance(each, Mapping) else ()
        found.append((field, tuple(map(str, others))))
    return found


def _resolved(schema: Any, root: Any) -> Any:
    for _ in range(DEPTH_MAX):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if reference is None:
            return schema
        schema = root
        steps = [] if reference == "#" else str(reference).removeprefix("#").strip("/").split("/")
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            if not str(reference).startswith("#") or not isinstance(schema, Mapping) or name not in schema:
                raise _invalid(f"$ref {reference!r:.200} leads to nothing in the schema: put the definition into it")
            schema = schema[name]
    raise _invalid(f"$ref {reference!r:.200} leads in a circle")


def _json_field(name: str, given: Any, root: Any, *, is_required: bool, budget: _Budget) -> pa.Field:
    budget.deeper(name)
    schema, may_be_null = _without_null(_resolved(given, root), root)
    with budget.inside():
        kind = _json_type(schema, root, budget)
    nullable = may_be_null or not is_required
    return pa.field(name, pa.string(), nullable, AS_JSON) if kind is None else pa.field(name, kind, nullable)


def _without_null(schema: Any, root: Any) -> tuple[Any, bool]:
    """The schema without its null, and whether it had one."""
    if not isinstance(schema, Mapping):
        return {}, True
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            ways = [_resolved(each, root) for each in schema[word]]
            left = [each for each in ways if not (isinstance(each, Mapping) and each.get("type") == "null")]
            return left[0] if len(left) == 1 else {}, len(left) < len(ways)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        left = [each for each in kinds if each != "null"]
        return {**schema, "type": left[0] if len(left) == 1 else None}, "null" in kinds
    return schema, False


def _json_type(schema: Any, root: Any, budget: _Budget) -> pa.DataType | None:
    """The type; None for JSON text."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    form = schema.get("format") if isinstance(schema, Mapping) else None
    if kind in ("string", "number") and form == "decimal":
        return _decimal(schema)
    if kind == "string":
        return _JSON_FORMATS.get(str(form), pa.string())
    if kind == "integer" and form == "int32":
        return pa.int32()
    if isinstance(kind, str) and kind in _JSON_TYPES:
        return _JSON_TYPES[kind]
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return pa.list_(_json_field("element", schema["items"], root, is_required=True, budget=budget))
    if kind == "object" and isinstance(schema.get("properties"), Mapping) and schema["properties"]:
        required = schema.get("required") or ()
        return pa.struct(
            [
                _json_field(name, each, root, is_required=name in required, budget=budget)
                for name, each in schema["properties"].items()
            ]
        )
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        each = _json_field("value", schema["additionalProperties"], root, is_required=True, budget=budget)
        return pa.map_(pa.string(), each)
    return None


def _decimal(schema: Mapping[str, Any]) -> pa.DataType:
    precision, scale = schema.get("precision", _DECIMAL[0]), schema.get("scale", _DECIMAL[1])
    is_whole = type(precision) is int and type(scale) is int
    if not is_whole or not 1 <= precision <= _DECIMAL[0] or not 0 <= scale <= precision:
        raise _invalid(f"precision={precision!r:.50} and scale={scale!r:.50}: use 1 to 38, and 0 to the precision")
    return pa.decimal128(precision, scale)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The named types of an Avro schema, each with the namespace of its inside, and the namespace of a place in it."""

    known: Mapping[str, tuple[Mapping[str, Any], str]]
    namespace: str

    def inside(self, schema: Mapping[str, Any]) -> "_Scope":
        """The scope of what a named type holds."""
        return _Scope(self.known, _full_name(schema, self.namespace).rpartition(".")[0])

    def find(self, name: str) -> "tuple[Mapping[str, Any], _Scope]":
        """The type of that name, and the scope of what it holds. Raises INVALID_CONFIG if there is none."""
        full = name if "." in name or not self.namespace else f"{self.namespace}.{name}"
        found = self.known.get(full) or self.known.get(name)
        if found is None:
            raise _invalid(f"the Avro schema has no type {full!r:.200}: define it in the schema, before its first use")
        return found[0], _Scope(self.known, found[1])


_NAMED = ("record", "error", "enum", "fixed")


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name, own = str(schema.get("name", "")), str(schema.get("namespace", namespace))
    return name if "." in name or not own else f"{own}.{name}"


def known_types(document: Any) -> dict[str, tuple[Mapping[str, Any], str]]:
    """The named types of an Avro schema by their full names, each with the namespace of what it holds."""
    found: dict[str, tuple[Mapping[str, Any], str]] = {}
    left = [(document, "")]
    while left:
        schema, namespace = left.pop()
        if isinstance(schema, list):
            left += [(each, namespace) for each in schema]
        elif isinstance(schema, Mapping):
            if schema.get("type") in _NAMED:
                full = _full_name(schema, namespace)
                namespace = full.rpartition(".")[0]
                found[full] = schema, namespace
            inner = map(schema.get, ("type", "items", "values", "fields"))
            left += [(each, namespace) for each in inner if isinstance(each, (list, Mapping))]
    return found


def _avro_fields(document: Any, budget: _Budget) -> _Found:
    if not isinstance(document, Mapping) or document.get("type") != "record":
        return []
    scope = _Scope(known_types(document), "").inside(document)
    found: _Found = []
    for each in _members(document):
        field = _avro_field(str(each.get("name")), each.get("type"), scope, budget)
        found.append((field, tuple(map(str, each.get("aliases", ())))))
    return found


def _members(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    members = schema.get("fields")
    if not isinstance(members, list) or not all(isinstance(each, Mapping) for each in members):
        raise _invalid(f"record {schema.get('name')!r:.100} of the Avro schema has no list of fields")
    return members


def _avro_field(name: str, schema: Any, scope: _Scope, budget: _Budget) -> pa.Field:
    budget.deeper(name)
    nullable = False
    if isinstance(schema, list):
        left = [each for each in schema if each != "null"]
        nullable = len(left) < len(schema)
        schema = left[0] if len(left) == 1 else None
    with budget.inside():
        kind = _avro_type(schema, scope, budget)
    return pa.field(name, pa.string(), nullable, AS_JSON) if kind is None else pa.field(name, kind, nullable)


def _avro_type(schema: Any, scope: _Scope, budget: _Budget) -> pa.DataType | None:
    """The type; None for JSON text."""
    if isinstance(schema, str):
        return _AVRO_TYPES[schema] if schema in _AVRO_TYPES else _avro_mapping(*scope.find(schema), budget)
    if not isinstance(schema, Mapping):
        return None
    return _avro_mapping(schema, scope.inside(schema) if schema.get("type") in _NAMED else scope, budget)


def _avro_mapping(schema: Mapping[str, Any], scope: _Scope, budget: _Budget) -> pa.DataType | None:
    """The type of a schema that is an object; `scope` is that of what it holds."""
    kind, logical = schema.get("type"), schema.get("logicalType")
    if logical == "decimal":
        return _decimal({"scale": 0, **schema})
    if isinstance(logical, str) and logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    if kind in ("enum", "fixed"):
        return pa.string() if kind == "enum" else pa.binary()
    if kind == "array":
        return pa.list_(_avro_field("element", schema.get("items"), scope, budget))
    if kind == "map":
        return pa.map_(pa.string(), _avro_field("value", schema.get("values"), scope, budget))
    if kind == "record":
        return pa.struct(
            [_avro_field(str(each.get("name")), each.get("type"), scope, budget) for each in _members(schema)]
        )
    return _avro_type(kind, scope, budget)


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(each) for each in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    return pa.field(field.name, kind)


def _invalid(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, message)
