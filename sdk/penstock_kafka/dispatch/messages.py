"""The bytes of requests and answers, by kio. Requests are hostile: nothing of them is trusted before it is read whole.

```
request   api key i16 · version i16 · correlation id i32 · client id · tags of flexible versions · body
answer    correlation id i32 · tags of flexible versions · body
```
Source: https://kafka.apache.org/protocol#protocol_messages

Builds kio's entities of any version from answers that do not know the version.
"""

import dataclasses
import io
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock_core.limits import KAFKA_REQUEST_ENTRIES_MAX
from penstock_kafka.dispatch.api import Answer, Request, Uuid
from penstock_kafka.dispatch.entries import TooManyEntriesError, check_entries

_PREFIX = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")
_CLIENT_ID_LENGTH_MAX = 249
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY: Mapping[str, object] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "datetime_i64": None,
}


class MalformedRequestError(Exception):
    """The bytes are no request of Kafka. The connection cannot go on."""


class Prefix(NamedTuple):
    """The first eight bytes of each request."""

    api_key: int
    version: int
    correlation_id: int


def read_prefix(frame: bytes) -> Prefix:
    """The prefix of a request. Raises MalformedRequestError."""
    if len(frame) < _PREFIX.size:
        raise MalformedRequestError(f"a request of {len(frame)} bytes has no header")
    return Prefix(*_PREFIX.unpack_from(frame))


def read_request(prefix: Prefix, frame: bytes) -> tuple[str, Request]:
    """The client's id and the request, of a version that the gateway serves. Raises MalformedRequestError."""
    read_header, read_body = _readers(prefix.api_key, prefix.version)
    try:
        header, header_bytes = read_header(frame, 0)
        check_entries(load_request_schema(prefix.api_key, prefix.version), frame, header_bytes)
        request, _ = read_body(frame, header_bytes)  # Kafka ignores bytes behind it, and librdkafka sends some
    except TooManyEntriesError as error:
        raise MalformedRequestError(
            f"a request to API {prefix.api_key} lists more than {KAFKA_REQUEST_ENTRIES_MAX:,} entries"
        ) from error
    except Exception as error:  # kio's edge: whatever a wrong byte makes of it, the request is malformed
        raise MalformedRequestError(
            f"a request to API {prefix.api_key} version {prefix.version} cannot be read: {error!r:.200}"
        ) from error
    return str(header.client_id or "")[:_CLIENT_ID_LENGTH_MAX], request


def write_answer(prefix: Prefix, answer: Answer) -> bytes:
    """The frame of an answer, its length included."""
    kind, write_header, write_body = _writers(prefix.api_key, prefix.version)
    buffer = io.BytesIO()
    buffer.write(bytes(_LENGTH.size))
    write_header(buffer, prefix.correlation_id)
    write_body(buffer, entity_of(kind, answer))
    size = buffer.tell() - _LENGTH.size
    buffer.seek(0)
    buffer.write(_LENGTH.pack(size))
    return buffer.getvalue()


def write_unsupported_versions(correlation_id: int, versions: Answer) -> bytes:
    """The answer to an ApiVersions of an unknown version: in version 0, which all clients read."""
    answer = {**versions, "error_code": ErrorCode.unsupported_version}
    return write_answer(Prefix(18, 0, correlation_id), answer)


@lru_cache(maxsize=512)  # of the versions that the gateway serves
def _readers(key: int, version: int) -> tuple[Callable[[bytes, int], Any], Callable[[bytes, int], Any]]:
    kind: Any = load_request_schema(key, version)
    return entity_reader(kind.__header_schema__), entity_reader(kind)


@lru_cache(maxsize=512)
def _writers(key: int, version: int) -> tuple[type[Any], Callable[[io.BytesIO, int], None], Callable[..., None]]:
    kind: Any = load_response_schema(key, version)
    header = kind.__header_schema__
    write = entity_writer(header)
    return (
        kind,
        lambda buffer, correlation_id: write(buffer, header(correlation_id=correlation_id)),
        entity_writer(kind),
    )


class _Field(NamedTuple):
    name: str
    convert: Callable[[Any], object] | None  # of a value that the answer has
    entity: type[Any] | None  # inside
    is_list: bool
    has_default: bool
    empty: object  # in place of a value that the answer has not


def entity_of(kind: type[Any], answer: Mapping[str, object]) -> Any:
    """The entity of this kind with the answer's values. Values that the kind does not know are left out."""
    values: dict[str, object] = {}
    for name, convert, entity, is_list, has_default, empty in _fields(kind):  # type: ignore[arg-type]  # a type is hashable
        if name not in answer:
            if not has_default:
                values[name] = empty
            continue
        value = answer[name]
        if value is None:
            values[name] = None
        elif entity is not None:
            values[name] = _nested(entity, value, is_list=is_list)
        elif is_list and isinstance(value, Sequence):
            values[name] = tuple(value)
        else:
            values[name] = convert(value) if convert is not None else value
    return kind(**values)


def _nested(entity: type[Any], value: Any, *, is_list: bool) -> object:
    return tuple(entity_of(entity, each) for each in value) if is_list else entity_of(entity, value)


@lru_cache(maxsize=2_048)  # kinds of kio, of which there are fewer for the versions that the gateway serves
def _fields(kind: type[Any]) -> tuple[_Field, ...]:
    return tuple(_field(each) for each in dataclasses.fields(kind))


def _field(field: "dataclasses.Field[Any]") -> _Field:
    wire = field.metadata.get("kafka_type", "")
    kind, is_nullable = _without_none(field.type)
    is_list = get_origin(kind) is tuple
    inner = get_args(kind)[0] if is_list else kind
    entity = inner if dataclasses.is_dataclass(inner) and isinstance(inner, type) else None
    empty = None if is_nullable else () if is_list else _EMPTY.get(wire, 0)
    if entity is not None and not is_list and not is_nullable:
        empty = entity_of(entity, {})
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return _Field(field.name, _converter(wire), entity, is_list, has_default, empty)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) is not UnionType:
        return kind, False
    kinds = get_args(kind)
    return next(each for each in kinds if each is not NoneType), NoneType in kinds


def _converter(wire: str) -> Callable[[Any], object] | None:
    if wire in ("timedelta_i32", "timedelta_i64"):
        return lambda value: value if isinstance(value, timedelta) else timedelta(milliseconds=value)
    if wire == "datetime_i64":
        return lambda value: _EPOCH + timedelta(milliseconds=value) if value >= 0 else None
    if wire == "error_code":
        return ErrorCode
    if wire == "uuid":
        return lambda value: value if isinstance(value, Uuid) else Uuid(hex=value)
    return None
