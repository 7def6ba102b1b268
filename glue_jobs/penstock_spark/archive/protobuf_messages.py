"""Protobuf in the archive: the columns of a message, and messages as dicts of its fields.

A schema is JSON text of a message's name and a FileDescriptorSet (`protoc -o order.desc --include_imports`) in base64.

    int32, sint32, sfixed32 -> int32; uint32, fixed32, and those of 64 bits -> int64; uint64, fixed64 -> decimal(20,0)
    float, double, bool, string, bytes -> themselves; an enum -> the name of its value, or its number as text
    repeated -> list, map -> map, message -> struct; google.protobuf.Timestamp -> microseconds in UTC
    wrappers such as google.protobuf.StringValue -> what they wrap; Struct, Value and ListValue -> JSON text

A field that has presence is nullable: `optional`, of a oneof, or a message. Each other field has its default, as
Protobuf reads it.
"""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa

from penstock_core.errors import ErrorCode, PenstockError

Read = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("INT32", "SINT32", "SFIXED32"), pa.int32()),
    **dict.fromkeys(("INT64", "SINT64", "SFIXED64", "UINT32", "FIXED32"), pa.int64()),
    **dict.fromkeys(("UINT64", "FIXED64"), pa.decimal128(20, 0)),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOL": pa.bool_(),
    "STRING": pa.string(),
    "ENUM": pa.string(),
    "BYTES": pa.binary(),
}
_WELL_KNOWN = "google.protobuf."
_TIMESTAMP = f"{_WELL_KNOWN}Timestamp"
_DOCUMENTS = {f"{_WELL_KNOWN}{name}" for name in ("Struct", "Value", "ListValue")}
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"{_WELL_KNOWN}{name}Value" for name in _WRAPPED}


class Budget(Protocol):
    """The bounds of a schema: fields and levels."""

    def deeper(self, name: str) -> object:
        """Count a field. Raises INVALID_CONFIG."""

    def inside(self) -> Any:
        """A block in which the levels are one more."""


def schema_text(files: bytes, message: str) -> str:
    """The schema of a message: the bytes of a FileDescriptorSet, and the full name. An empty name: its only message.

    Raises INVALID_CONFIG for bytes that are none, and for a name that is not in them.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorSet.FromString(files)
    except DecodeError as error:
        raise _invalid(
            f"the file is no FileDescriptorSet ({error}): make it by protoc --include_imports -o order.desc order.proto"
        ) from error
    if not message:
        [*_, last] = found.file or [None]  # protoc writes a file behind its imports
        own = [] if last is None else [".".join(filter(None, (last.package, each.name))) for each in last.message_type]
        if len(own) != 1:
            raise _invalid(f"the last file has {len(own)} messages: name one of them, as in order.desc#shop.Order")
        message = own[0]
    text = json.dumps({"message": message, "files": base64.b64encode(files).decode()})
    descriptor_of(text)
    return text


def descriptor_of(text: str) -> Any:
    """The descriptor of the schema's message. Raises INVALID_CONFIG."""
    from google.protobuf import descriptor_pool
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    document = json.loads(text)
    pool = descriptor_pool.DescriptorPool()
    left = {each.name: each for each in FileDescriptorSet.FromString(base64.b64decode(document["files"])).file}

    def add(name: str) -> None:
        file = left.pop(name, None)
        if file is None:
            return  # it is there already, or the pool tells that it is missing
        for each in file.dependency:
            if each.startswith("google/protobuf/") and each not in left:
                with_it = FileDescriptorProto()
                _well_known(each).CopyToProto(with_it)
                left[each] = with_it
            add(each)
        pool.Add(file)

    try:
        for name in list(left):
            add(name)
        return pool.FindMessageTypeByName(document["message"])
    except (ImportError, KeyError, TypeError, RecursionError) as error:
        raise _invalid(
            f"message {document['message']!r:.200} is not in the FileDescriptorSet, or its files are not "
            f"({error!s:.300}): make it by protoc --include_imports, and give the full name, such as shop.Order"
        ) from error


def _well_known(name: str) -> Any:
    from google.protobuf import descriptor_pool

    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")  # puts the file into the pool
    return descriptor_pool.Default().FindFileByName(name)


def message_fields(text: str, budget: Budget, as_json: Mapping[bytes, bytes]) -> list[tuple[pa.Field, int]]:
    """The fields of the schema's message, each with its number. `as_json` are the metadata of a column of JSON text."""
    return [(_field(each, budget, as_json), each.number) for each in descriptor_of(text).fields]


def message_reader(text: str) -> Callable[[bytes], dict[str, Any]]:
    """A function that makes a dict of a message's bytes. It raises for bytes that are none."""
    from google.protobuf.message_factory import GetMessageClass

    descriptor = descriptor_of(text)
    make, read = GetMessageClass(descriptor), _read_message(descriptor)

    def decode(data: bytes) -> dict[str, Any]:
        message = make.FromString(data)
        if not message.IsInitialized():
            raise ValueError(f"required fields are missing: {', '.join(message.FindInitializationErrors())}")
        found: dict[str, Any] = read(message)
        return found

    return decode


def _field(field: Any, budget: Budget, as_json: Mapping[bytes, bytes]) -> pa.Field:
    budget.deeper(field.name)
    with budget.inside():
        if _is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            kind = pa.map_(_TYPES[_type_name(key)], _one("value", value, budget, as_json, nullable=False))
            return pa.field(field.name, kind, nullable=False)
        if field.is_repeated:
            element = _one("element", field, budget, as_json, nullable=False)
            return pa.field(field.name, pa.list_(element), nullable=False)
        return _one(field.name, field, budget, as_json, nullable=field.has_presence)


def _one(name: str, field: Any, budget: Budget, as_json: Mapping[bytes, bytes], *, nullable: bool) -> pa.Field:
    message = field.message_type
    if message is None:
        return pa.field(name, _TYPES[_type_name(field)], nullable)
    if message.full_name in _DOCUMENTS:
        return pa.field(name, pa.string(), nullable, as_json)
    if message.full_name == _TIMESTAMP:
        return pa.field(name, pa.timestamp("us", "UTC"), nullable)
    if message.full_name in _WRAPPERS:
        return pa.field(name, _TYPES[_type_name(message.fields_by_name["value"])], nullable)
    if not message.fields:
        return pa.field(name, pa.string(), nullable, as_json)  # Iceberg has no struct without fields: it is {}
    return pa.field(name, pa.struct([_field(each, budget, as_json) for each in message.fields]), nullable)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _type_name(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    name: str = FieldDescriptorProto.Type.Name(field.type)
    return name.removeprefix("TYPE_")


def _read_message(descriptor: Any) -> Read:
    parts = [(each.name, each.has_presence and not each.is_repeated, _read_field(each)) for each in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: convert(getattr(message, name)) if not has_presence or message.HasField(name) else None
            for name, has_presence, convert in parts
        }

    return read


def _read_field(field: Any) -> Read:
    if _is_map(field):
        of_value = _read_one(field.message_type.fields_by_name["value"])
        return lambda cells: {key: of_value(cells[key]) for key in cells}
    convert = _read_one(field)
    return (lambda cells: [convert(each) for each in cells]) if field.is_repeated else convert


def _read_one(field: Any) -> Read:
    if field.enum_type is not None:
        names = {each.number: each.name for each in reversed(field.enum_type.values)}
        return lambda number: names.get(number) or str(number)
    message = field.message_type
    if message is None:
        return lambda value: value
    if message.full_name in _DOCUMENTS:
        from google.protobuf.json_format import MessageToDict

        to_dict: Read = MessageToDict
        return to_dict
    if message.full_name == _TIMESTAMP:
        # Protobuf's nanoseconds end at the microseconds that the column keeps.
        return lambda value: _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
    if message.full_name in _WRAPPERS:
        return lambda value: value.value
    return _read_message(message)


def _invalid(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, message)
