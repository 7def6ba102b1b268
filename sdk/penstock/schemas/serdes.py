"""Values as JSON, Avro or Protobuf, with or without a registry. One object writes and reads.

Without a registry, the bytes are the format's own, and both sides have the same schema. With a registry, bytes in front
name the writer's schema (registry.py), so a reader can read what was written under an older or a newer one.
"""

import base64
import io
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal

from penstock.arguments import check, check_callable
from penstock.errors import CorruptError, InvalidError, LookUpFirst, NotConfiguredError
from penstock.schemas.avro_shape import avro_reader, check_items
from penstock.schemas.registry import Registry, Schema, SchemaReference, framed
from penstock.schemas.serialization import Field
from penstock_core.errors import ErrorCode
from penstock_core.records.codec import Headers

# The name of the schema in the registry: for a topic, for a type of record, or for both; or a function of them.
Subjects = Literal["topic", "record", "topic_record"] | Callable[[str, Field, str], str]

_COMPILED_MAX = 1_000  # writers' schemas that a serde keeps ready
_PATH_MAX = 200
_FLOAT_INFINITY = re.compile(rb"\x00\x00\x80[\x7f\xff]")  # either, as Avro writes it
_TOP = "PenstockTop"  # a record around a schema that is none: of one field, whose bytes are the record's
_WELL_KNOWN = "google/protobuf/"  # registries and clients have these files


class _Serde(ABC):
    """The part that the formats share: the bytes in front of a value, and the schemas that they name."""

    def __init__(self, registry: Registry | None, subjects: Subjects, registers: bool) -> None:
        is_registry = registry is None or isinstance(registry, Registry)
        check(is_registry, f"registry={registry!r:.100}: give a ConfluentRegistry or a GlueRegistry")
        is_known = callable(subjects) or subjects in ("topic", "record", "topic_record")
        check(is_known, f"subjects={subjects!r:.100}: use 'topic', 'record', 'topic_record', or a function")
        check(isinstance(registers, bool), f"registers={registers!r:.100}: give True or False")
        self._registry = registry
        self._subjects = subjects
        self._registers = registers
        self._compiled: dict[Hashable, Any] = {}

    def serialize(self, topic: str, field: Field, given: Any) -> bytes:
        """The bytes of a value. It may ask the registry. Raises InvalidError for a value that the schema refuses."""
        while True:
            try:
                return self.serialize_now(topic, field, given)
            except LookUpFirst as missing:
                missing.look_up()

    def deserialize(self, topic: str, field: Field, data: bytes) -> Any:
        """The value. It may ask the registry. Raises CorruptError for bytes that the schema does not explain."""
        while True:
            try:
                return self.deserialize_now(topic, field, data)
            except LookUpFirst as missing:
                missing.look_up()

    def serialize_now(self, topic: str, field: Field, given: Any) -> bytes:
        """As `serialize`, but it asks nobody: raises LookUpFirst instead."""
        payload = self._encode(topic, field, given)
        if self._registry is None:
            return payload
        schema = self._schema_of(given)
        header = self._registry.header(self._subject(topic, field, given), schema, registers=self._registers)
        return header + payload

    def deserialize_now(self, topic: str, field: Field, data: bytes) -> Any:
        """As `deserialize`, but it asks nobody: raises LookUpFirst instead."""
        del topic, field
        if self._registry is None:
            return self._decode(data, None)
        schema_id, payload = self._registry.split(data)
        if not self._needs_writer:
            return self._decode(payload, None)
        compiled = self._compiled.get(schema_id)
        if compiled is None:
            schema = self._registry.schema(schema_id)
            compiled = self._compile(schema)
            while len(self._compiled) >= _COMPILED_MAX:
                self._compiled.pop(next(iter(self._compiled)), None)
            self._compiled[schema_id] = compiled
        return self._decode(payload, compiled)

    def framed(self, field: Field, data: bytes, headers: Headers) -> bytes:
        """The value as `deserialize` takes it: what a header says of its schema goes in front. Raises CorruptError."""
        name = None if self._registry is None else self._registry.id_headers.get(field)
        found = None if name is None else next((value for key, value in headers if key == name), None)
        return data if self._registry is None or found is None else framed(self._registry, found, data)

    def _subject(self, topic: str, field: Field, given: Any) -> str:
        assert self._registry is not None
        if self._subjects == "topic":
            return self._registry.subject(topic, field)
        name = self._record_name(given)
        if callable(self._subjects):
            return self._subjects(topic, field, name)
        check(bool(name), f"subjects={self._subjects!r}: the schema has no name; a JSON Schema has it as its title")
        return name if self._subjects == "record" else f"{topic}-{name}"

    _needs_writer = True  # a reader cannot do without the writer's schema

    @abstractmethod
    def _encode(self, topic: str, field: Field, given: Any) -> bytes: ...

    @abstractmethod
    def _decode(self, payload: bytes, writer: Any) -> Any: ...

    @abstractmethod
    def _compile(self, writer: Schema) -> Any:
        """The writer's schema in the form that `_decode` takes."""

    @abstractmethod
    def _schema_of(self, given: Any) -> Schema: ...

    @abstractmethod
    def _record_name(self, given: Any) -> str: ...


class JsonSerde(_Serde):
    """JSON, checked by a JSON Schema if there is one.

        orders = JsonSerde({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}})
        Producer(value_serializer=orders), Consumer("orders", value_deserializer=orders)

    `schema` is a dict or JSON text. It checks what is written and what is read; a reader without one checks by the
    writer's, if there is a registry. `dump` makes a JSON value of what you send, `load` makes your object of it:
    `JsonSerde(Order.model_json_schema(), dump=Order.model_dump, load=Order.model_validate)` for pydantic. Schemas need
    the extra `penstock[jsonschema]`. References of a schema to files or hosts are not followed; those of the registry
    are. Raises InvalidError for a schema that is none.
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | str | None = None,
        *,
        registry: Registry | None = None,
        subjects: Subjects = "topic",
        registers: bool = True,
        dump: Callable[[Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(registry, subjects, registers)
        check_callable("dump", dump)
        check_callable("load", load)
        self._dump, self._load = dump, load
        self._text, document = _document(schema)
        self._title = str(document.get("title", "")) if isinstance(document, Mapping) else ""
        self._validator = None if document is None else _validator(document, ())
        self._needs_writer = self._validator is None

    def __getstate__(self) -> dict[str, Any]:
        """Validators are of a compiled library, and made again elsewhere."""
        return {**self.__dict__, "_validator": None, "_compiled": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        document = _document(self._text)[1]
        self._validator = None if document is None else _validator(document, ())

    def _encode(self, topic: str, field: Field, given: Any) -> bytes:
        value = given if self._dump is None else self._dump(given)
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        if self._validator is not None:
            why = _why_invalid(self._validator, value)
            if why:
                raise InvalidError(
                    ErrorCode.INVALID_RECORD,
                    f"the {field} of a record for {topic!r:.100} breaks its schema: {why}",
                )
        return data

    def _decode(self, payload: bytes, writer: Any) -> Any:
        value = json.loads(payload)
        validator = self._validator or writer
        why = "" if validator is None else _why_invalid(validator, value)
        if why:
            raise CorruptError(ErrorCode.CORRUPT_BATCH, f"the JSON {payload[:100]!r} breaks its schema: {why}")
        return value if self._load is None else self._load(value)

    def _compile(self, writer: Schema) -> Any:
        _check_kind(writer, "JSON")
        return _validator(_text_of(writer.text), writer.references)

    def _schema_of(self, given: Any) -> Schema:
        del given
        check(self._text is not None, "JsonSerde(): give the schema that a registry is to have")
        return Schema("JSON", str(self._text))

    def _record_name(self, given: Any) -> str:
        del given
        return self._title


class AvroSerde(_Serde):
    """Avro's binary form.

        orders = AvroSerde(schema, registry=ConfluentRegistry("https://registry.example.com"))

    `schema` is a dict, a list, or the text of an .avsc file. It writes, and what is read is resolved to it: fields that
    it does not have are left out, and its defaults fill in. A reader without a schema gets what the writer had. Values
    are dicts; timestamps, decimals and UUIDs are those of Python. `dump` and `load` turn your objects into dicts and
    back. A field that the schema lacks is refused, so that no field is lost. So is a value that Avro would change: 1.9
    as an int, 7 as a boolean, 2**40 as an int, 1e300 as a float. The check takes about twice the time of the writing.
    Needs the extra `penstock[avro]`. Raises InvalidError for a schema that is none, and NotConfiguredError without the
    package.
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | list[Any] | str | None = None,
        *,
        registry: Registry | None = None,
        subjects: Subjects = "topic",
        registers: bool = True,
        dump: Callable[[Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(registry, subjects, registers)
        check(registry is not None or schema is not None, "AvroSerde(): give a schema, a registry, or both")
        check_callable("dump", dump)
        check_callable("load", load)
        self._dump, self._load = dump, load
        self._avro = _package("fastavro", "avro")
        self._text, document = _document(schema)
        self._parsed = None if document is None else parse_avro(document, ())
        self._read = avro_reader(self._parsed)
        self._reader_top: Any = None  # the same in a record, made when it is needed

    def __getstate__(self) -> dict[str, Any]:
        """Modules do not travel."""
        return {**self.__dict__, "_avro": None, "_read": None, "_compiled": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._avro = _package("fastavro", "avro")
        self._read = avro_reader(self._parsed)

    def _encode(self, topic: str, field: Field, given: Any) -> bytes:
        check(self._parsed is not None, "AvroSerde(): give the schema to write with")
        value = given if self._dump is None else self._dump(given)
        buffer = io.BytesIO()
        try:
            self._validate(value, self._parsed)
            self._avro.schemaless_writer(buffer, self._parsed, value, strict_allow_default=True)
            self._check_floats(buffer.getvalue(), value)
        except Exception as error:  # fastavro raises what Python's own operations do
            raise InvalidError(
                ErrorCode.INVALID_RECORD,
                f"the {field} of a record for topic {topic!r:.100} breaks its schema: {self._why(value, error)}",
            ) from error
        return buffer.getvalue()

    def _validate(self, value: Any, schema: Any) -> None:
        """Raises ValidationError, and what Python's own operations do."""
        self._avro.validation.validate(value, schema, strict=True)

    def _check_floats(self, data: bytes, value: Any) -> None:
        """The writer makes infinity of a float that has no room in 32 bits. Raises ValueError for it."""
        if _FLOAT_INFINITY.search(data):
            lost = _became_infinite(
                self._avro.schemaless_reader(io.BytesIO(data), self._parsed, None), value, self._record_name(None)
            )
            if lost is not None:
                raise ValueError(f"{lost}, and the schema says 'float': say 'double' there")

    def _why(self, value: Any, error: Exception) -> str:
        """The field and what is wrong with it."""
        if isinstance(error, self._avro.validation.ValidationError):
            return f"{'; '.join(_told(each) for each in error.errors):.500}"
        parsed = self._parsed if isinstance(self._parsed, Mapping) else {}
        for each in parsed.get("fields", ()):  # an error of a logical type does not tell its field
            try:
                self._validate(value, {**parsed, "fields": [each]})
            except Exception as found:
                return f"{parsed['name']}.{each['name']}: {found!s:.400}"
        return f"{error!s:.500}"

    def _decode(self, payload: bytes, writer: Any) -> Any:
        parsed, read = (self._parsed, self._read) if writer is None else writer
        is_in_top = isinstance(parsed, Mapping) and parsed.get("name") == _TOP
        reader = self._parsed if writer is not None else None
        if is_in_top and reader is not None:
            if self._reader_top is None:
                self._reader_top = parse_avro(_in_top(json.loads(str(self._text))), ())
            reader = self._reader_top
        try:
            value = read(payload, reader)
        except (self._avro.schema.UnknownType, self._avro.schema.SchemaParseException) as error:
            raise _unread("Avro", error) from error  # the schema's fault, not the record's
        value = value["value"] if is_in_top else value
        return value if self._load is None else self._load(value)

    def _compile(self, writer: Schema) -> Any:
        _check_kind(writer, "AVRO")
        document = _text_of(writer.text)
        is_record = isinstance(document, Mapping) and document.get("type") in ("record", "error")
        # The library keeps the schemas that a schema names only with a record.
        parsed = parse_avro(document if is_record else _in_top(document), writer.references)
        return parsed, avro_reader(parsed)

    def _schema_of(self, given: Any) -> Schema:
        del given
        return Schema("AVRO", str(self._text))

    def _record_name(self, given: Any) -> str:
        del given
        return str(self._parsed.get("name", "")) if isinstance(self._parsed, Mapping) else ""


class ProtobufSerde(_Serde):
    """Messages of one class that protoc has generated.

        orders = ProtobufSerde(orders_pb2.Order, registry=ConfluentRegistry("https://registry.example.com"))

    A registry gets the class's file and those that it imports. AWS Glue takes only the text of a .proto file: give it
    as `proto`. A reader parses by its own class, whatever file wrote the message, as Protobuf's rules of evolution
    allow. Needs the extra `penstock[protobuf]`. Raises InvalidError for what is no message class.
    """

    _needs_writer = False

    def __init__(
        self,
        message: type[Any],
        *,
        registry: Registry | None = None,
        subjects: Subjects = "topic",
        registers: bool = True,
        proto: str | None = None,
    ) -> None:
        super().__init__(registry, subjects, registers)
        _package("google.protobuf", "protobuf")
        descriptor: Any = getattr(message, "DESCRIPTOR", None)
        is_message = isinstance(message, type) and hasattr(message, "ParseFromString") and descriptor is not None
        check(is_message, f"message={message!r:.100}: give a class that protoc has generated, such as orders_pb2.Order")
        self._message = message
        self._proto = proto
        self._schema = self._indexes = None
        if registry is not None:
            path, names = message_place(descriptor)
            self._indexes = registry.indexes(path, names, descriptor.full_name)
            self._schema = _schema_of_file(descriptor.file) if proto is None else Schema("PROTOBUF", proto)
            is_text = proto is not None or not registry.name.startswith("glue:")
            check(is_text, "AWS Glue stores the text of .proto files: give it as proto=")

    def _encode(self, topic: str, field: Field, given: Any) -> bytes:
        check(
            isinstance(given, self._message),
            f"the {field} of a record for topic {topic!r:.100} is of type {type(given).__name__}: give a "
            f"{self._message.__name__}",
        )
        data: bytes = given.SerializeToString()  # raises for a required field without a value
        return data if self._indexes is None else self._indexes + data

    def _decode(self, payload: bytes, writer: Any) -> Any:
        del writer
        if self._registry is not None:
            payload = self._registry.without_indexes(payload)
        message = self._message()
        message.ParseFromString(bytes(payload))
        return message

    def _compile(self, writer: Schema) -> Any:
        raise NotImplementedError  # _needs_writer is False

    def _schema_of(self, given: Any) -> Schema:
        del given
        assert self._schema is not None
        return self._schema

    def _record_name(self, given: Any) -> str:
        del given
        return str(self._message.DESCRIPTOR.full_name)


def parse_avro(document: Any, references: tuple[SchemaReference, ...]) -> Any:
    """The schema as fastavro takes it, with the schemas that it names. Raises InvalidError for one that is none."""
    library, named = _package("fastavro", "avro"), dict[str, Any]()
    try:
        for each in flattened(references):
            library.parse_schema(json.loads(each.schema.text), named_schemas=named)
        parsed = library.parse_schema(document, named_schemas=named)
        check_items(parsed)
    except Exception as error:  # fastavro raises what Python's own operations do
        raise _unread("Avro", error) from error
    return parsed


def _document(schema: Any) -> tuple[str | None, Any]:
    """The schema as text and as what JSON makes of it. Raises InvalidError."""
    if schema is None:
        return None, None
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return text, json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        why = f"schema={schema!r:.200}: give a schema as a dict, or its JSON text ({error!s:.200})"
        raise InvalidError(ErrorCode.INVALID_CONFIG, why) from error


def _text_of(text: str) -> Any:
    """The JSON document of a registry's schema. No record is to blame for one that is none: raises InvalidError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = f"the registry's schema {text!r:.200} is no JSON: {error!s:.200}; register it anew"
        raise InvalidError(ErrorCode.INVALID_CONFIG, why) from error


def _unread(kind: str, error: Exception) -> InvalidError:
    why = f"the {kind} schema is not valid: {type(error).__name__}: {error!s:.500}"
    return InvalidError(ErrorCode.INVALID_CONFIG, why)


def _in_top(document: Any) -> dict[str, Any]:
    return {"type": "record", "name": _TOP, "fields": [{"name": "value", "type": document}]}


def _told(breach: Any) -> str:
    """One error of fastavro's validation."""
    field, given = breach.field or "the value", breach.datum
    if isinstance(given, Mapping) and isinstance(breach.schema, Mapping):
        fields = breach.schema.get("fields", ())
        missing = [str(each["name"]) for each in fields if "default" not in each and each["name"] not in given]
        if missing:
            return f"{breach.schema['name']}.{missing[0]:.100} is missing from {given!r:.100}"
    return f"{field} is {given!r:.100} of type {type(given).__name__}, and the schema says {breach.schema!r:.150}"


def _became_infinite(written: Any, given: Any, path: str) -> str | None:
    """The first place where infinity was written for a number that is finite."""
    if isinstance(given, tuple) and not isinstance(written, list):
        given = given[-1]  # (the name of a union's type, the value)
    if isinstance(written, Mapping) and isinstance(given, Mapping):
        pairs = [(written[name], given.get(name), f"{path}.{name}".lstrip(".")) for name in written]
    elif isinstance(written, list) and isinstance(given, Sequence):
        pairs = [(each, given[at], f"{path}[{at}]") for at, each in enumerate(written)]
    elif isinstance(written, float) and math.isinf(written) and given is not None and not math.isinf(given):
        return f"{path or 'the value'} is {given!r:.100}"
    else:
        return None
    return next((found for each in pairs if (found := _became_infinite(*each)) is not None), None)


def _validator(document: Any, references: tuple[SchemaReference, ...]) -> Any:
    """A validator of a JSON Schema. References lead to the registry's documents, and to no file and no host."""
    known = {each.name: _text_of(each.schema.text) for each in flattened(references)}

    def retrieve(uri: str) -> Any:
        for name, found in known.items():
            if uri == name or uri.endswith(f"/{name}"):
                return found
        raise ValueError(f"the schema refers to {uri!r:.200}, which the registry does not name")

    library = _package("jsonschema_rs", "jsonschema")
    try:
        return library.validator_for(document, retriever=retrieve)
    except Exception as error:  # the library has errors of several kinds for a schema that is none
        raise _unread("JSON", error) from error


def _why_invalid(validator: Any, value: Any) -> str:
    """The first breach, with its place in the value; empty if there is none."""
    if validator.is_valid(value):
        return ""
    error = next(iter(validator.iter_errors(value)))
    path = "/".join(str(each) for each in error.instance_path)
    return f"{error.message:.500} at /{path:.{_PATH_MAX}}"


def flattened(references: tuple[SchemaReference, ...]) -> list[SchemaReference]:
    """References of references first."""
    found: dict[str, SchemaReference] = {}
    for each in references:
        for inner in (*flattened(each.schema.references), each):
            found.setdefault(inner.name, inner)
    return list(found.values())


def message_place(descriptor: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """A message's path in its file, and the full names of all of the file's messages."""
    path: list[int] = []
    each = descriptor
    while each is not None:
        outer = each.containing_type
        siblings = descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
        path.append([found.full_name for found in siblings].index(each.full_name))
        each = outer
    names: list[str] = []
    waiting = [*descriptor.file.message_types_by_name.values()]
    while waiting:
        found = waiting.pop()
        names.append(found.full_name)
        waiting += found.nested_types
    return tuple(reversed(path)), tuple(names)


def _schema_of_file(file: Any) -> Schema:
    """A .proto file as registries take it from a program: base64 of its description."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    described = FileDescriptorProto()
    file.CopyToProto(described)
    references = tuple(
        SchemaReference(each.name, _schema_of_file(each))
        for each in file.dependencies
        if not each.name.startswith(_WELL_KNOWN)
    )
    return Schema("PROTOBUF", base64.b64encode(described.SerializeToString()).decode(), references)


def _check_kind(schema: Schema, wanted: str) -> None:
    if schema.kind != wanted:
        how = {"AVRO": "AvroSerde", "JSON": "JsonSerde", "PROTOBUF": "ProtobufSerde"}[schema.kind]
        raise InvalidError(ErrorCode.INVALID_CONFIG, f"the value's schema is of kind {schema.kind}: read it by {how}")


def _package(name: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotConfiguredError(f"{name} is missing: pip install 'penstock[{extra}]'") from error
