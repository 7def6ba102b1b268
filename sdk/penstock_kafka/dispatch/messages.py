"""The bytes of requests and answers, by kio. Requests are hostile: nothing of them is trusted before it is read whole.

```
request   api key i16 · version i16 · correlation id i32 · client id · tags of flexible versions · body
answer    correlation id i32 · tags of flexible versions · body
```
Source: https://kafka.apache.org/protocol#protocol_messages
"""

import io
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock_core.limits import KAFKA_REQUEST_ENTRIES_MAX
from penstock_kafka.dispatch.api import Answer, Request
from penstock_kafka.dispatch.entities import entity_of
from penstock_kafka.dispatch.entries import TooManyEntriesError, check_entries

_PREFIX = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")
_CLIENT_ID_LENGTH_MAX = 249


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
