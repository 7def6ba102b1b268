"""Schema registries: the bytes in front of a value that name its schema, and the look-ups behind them.

    Confluent's wire format    00 | 4 bytes of schema id | (Protobuf: message indexes) | payload
    Confluent's header         01 | 16 bytes of GUID       | (Protobuf: message indexes), and the value is the payload
    AWS Glue's (glue.py)       03 | 00 or 05 for zlib | 16 bytes of schema version id  | payload

A schema never changes under its id, so look-ups are kept. A registry's refusal is kept for 10 seconds, and a registry
that does not answer is asked again after a second. So a consumer that meets one id in each record does not ask for
each. Everything here is safe in several threads: two of them may make the same look-up twice, which does no harm.
"""

import copy
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeVar
from urllib.parse import quote, urlsplit

import urllib3

from penstock.arguments import check
from penstock.errors import AccessDeniedError, CorruptError, InvalidError, LookUpFirst, UnavailableError
from penstock.http.connections import Connections
from penstock.http.no_answer import NoAnswerError
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]

_KNOWN_MAX = 10_000  # schemas and subjects that a registry remembers
_REFERENCES_MAX = 100  # of one schema, those of its references included
_REFUSED_MS = 10_000
_UNAVAILABLE_MS = 1_000
_TIMEOUT_S = 5.0
_ANSWER_BYTES_MAX = 10_000_000
_CONFLUENT_MAGIC, _GUID_MAGIC = 0, 1
_CONFLUENT_HEADER = struct.Struct(">bI")
_GUID_LENGTH = 1 + 16
_ANSWER_TYPE = "application/vnd.schemaregistry.v1+json, application/json"
_SERIALIZED = "?format=serialized"  # of Protobuf: its description instead of the .proto file's text
_UNKNOWN_SCHEMA, _UNKNOWN_SUBJECT, _UNKNOWN_VERSION = 40403, 40401, 40402

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one names: an Avro type, a JSON document's `$ref`, a Protobuf import."""

    name: str
    schema: "Schema"
    subject: str = ""  # where it is registered; by default under its name
    version: int = 0


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as its registry stores it. Of Protobuf, `text` is base64 of a FileDescriptorProto."""

    kind: SchemaKind
    text: str
    references: tuple[SchemaReference, ...] = ()


class _LookUps(Generic[Found]):
    """The results of one kind of look-up, and its refusals."""

    def __init__(self, ask: Callable[..., Found], now_ms: Callable[[], int]) -> None:
        self._ask = ask
        self._now_ms = now_ms
        self._found: dict[Hashable, Found] = {}
        self._failures: dict[Hashable, tuple[PenstockError, int]] = {}

    def get(self, *asked: Hashable) -> Found:
        """The result. Raises LookUpFirst, and for a while the error of the last look-up."""
        found = self._found.get(asked)
        if found is not None:
            return found
        failure = self._failures.get(asked)
        if failure is not None and self._now_ms() < failure[1] and not isinstance(failure[0], UnavailableError):
            raise copy.copy(failure[0])
        raise LookUpFirst(partial(self._look_up, asked))

    def _look_up(self, asked: tuple[Hashable, ...]) -> None:
        """Ask. A refusal is kept, and raised by `get`. Raises UnavailableError, for a second without asking."""
        failure = self._failures.get(asked)
        if failure is not None and self._now_ms() < failure[1]:
            raise copy.copy(failure[0])
        try:
            found = self._ask(*asked)
        except UnavailableError as error:
            self._keep(self._failures, asked, (copy.copy(error), self._now_ms() + _UNAVAILABLE_MS))
            raise
        except PenstockError as error:
            self._keep(self._failures, asked, (copy.copy(error), self._now_ms() + _REFUSED_MS))
        else:
            self._keep(self._found, asked, found)
            self._failures.pop(asked, None)

    def _keep(self, memory: dict[Hashable, Any], asked: Hashable, value: object) -> None:
        for oldest in list(memory)[: max(0, len(memory) - _KNOWN_MAX + 1)]:
            memory.pop(oldest, None)
        memory[asked] = value


class Registry(ABC):
    """A schema registry as serdes use it. The methods answer from memory, or raise LookUpFirst."""

    name: str  # for messages
    id_headers: ClassVar[Mapping[str, str]] = {}  # of a record: those that may name the schema, by the field

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._forget()

    def _forget(self) -> None:
        self._headers: _LookUps[bytes] = _LookUps(self._find_header, self._now_ms)
        self._schemas: _LookUps[Schema] = _LookUps(self._find_schema, self._now_ms)

    def __getstate__(self) -> dict[str, Any]:
        """Connections and what was found do not travel to another process."""
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_headers", "_schemas")}
        return {**kept, **{name: None for name in ("_connections", "_client") if name in kept}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def header(self, subject: str, schema: Schema, *, registers: bool) -> bytes:
        """The bytes in front of values with this schema. It is registered if it is not, with `registers`."""
        return self._headers.get(subject, schema, registers)

    def schema(self, schema_id: Hashable) -> Schema:
        """The schema of an id that `split` has found."""
        return self._schemas.get(schema_id)

    def subject(self, topic: str, field: str) -> str:
        """The subject of a topic's values or keys, by the registry's own custom."""
        return f"{topic}-{field}"

    @abstractmethod
    def newest(self, subject: str) -> Schema:
        """The newest version of a subject. It asks each time. Raises as the look-ups."""

    @abstractmethod
    def split(self, data: bytes) -> tuple[Hashable, bytes]:
        """The schema's id and the payload. Raises CorruptError for bytes that are not in the registry's format."""

    @abstractmethod
    def indexes(self, path: tuple[int, ...], names: tuple[str, ...], full_name: str) -> bytes:
        """The bytes that name a Protobuf message in its file: by its path, or by its place among the file's `names`."""

    @abstractmethod
    def without_indexes(self, payload: bytes) -> bytes:
        """A Protobuf payload behind the bytes of `indexes`. Raises CorruptError."""

    @abstractmethod
    def _find_header(self, subject: str, schema: Schema, registers: bool) -> bytes:
        """Ask the registry. Raises InvalidError for a schema that it refuses or lacks, and UnavailableError."""

    @abstractmethod
    def _find_schema(self, schema_id: Any) -> Schema:
        """Ask the registry. Raises as `_find_header`."""


class ConfluentRegistry(Registry):
    """A registry with Confluent's HTTP API: Confluent's, Karapace, Redpanda's, Apicurio under its path for it.

        registry = ConfluentRegistry("https://registry.example.com", auth=("user", "password"))

    `auth` is user and password, or `token` a bearer token. Several serdes and clients may share one. It makes one
    request for each schema and subject that it meets. Readers also take a schema's GUID from the headers
    `__value_schema_id` and `__key_schema_id`, if the registry answers for GUIDs.
    """

    id_headers: ClassVar[Mapping[str, str]] = {"value": "__value_schema_id", "key": "__key_schema_id"}

    def __init__(
        self,
        url: str,
        *,
        auth: tuple[str, str] | None = None,
        token: str | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        check(
            parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username,
            f"registry {url!r:.200}: give http://host or https://host, and user and password as auth=",
        )
        check(auth is None or token is None, "auth and token: give one of them")
        super().__init__(now_ms)
        self.name = self._url = url.rstrip("/")
        self._sent = {"Accept": _ANSWER_TYPE, "Content-Type": "application/vnd.schemaregistry.v1+json"}
        if auth is not None:
            self._sent |= urllib3.make_headers(basic_auth=":".join(auth))
        elif token is not None:
            self._sent["Authorization"] = f"Bearer {token}"
        self._connections: Connections | None = None

    def split(self, data: bytes) -> tuple[int | str, bytes]:
        """The id from 4 bytes behind the magic byte, or the GUID of a header that `framed` has put in front."""
        if len(data) >= _GUID_LENGTH and data[0] == _GUID_MAGIC:
            return uuid_of(data[1:_GUID_LENGTH]), data[_GUID_LENGTH:]
        if len(data) < _CONFLUENT_HEADER.size or data[0] != _CONFLUENT_MAGIC:
            raise not_framed(data, "a byte 0 and 4 bytes of schema id")
        [_, schema_id] = _CONFLUENT_HEADER.unpack_from(data)
        return schema_id, data[_CONFLUENT_HEADER.size :]

    def indexes(self, path: tuple[int, ...], names: tuple[str, ...], full_name: str) -> bytes:
        """The path's length and its numbers as zigzag varints. The first message of a file is one byte 0."""
        del names, full_name
        return b"\x00" if path == (0,) else b"".join(varint(each << 1) for each in (len(path), *path))

    def without_indexes(self, payload: bytes) -> bytes:
        """Behind the count and as many varints."""
        count, at = read_varint(payload, 0)
        for _ in range(count >> 1):
            _, at = read_varint(payload, at)
        return payload[at:]

    def _find_header(self, subject: str, schema: Schema, registers: bool) -> bytes:
        references = [
            {"name": each.name, "subject": each.subject or each.name, "version": self._version(each, registers)}
            for each in schema.references
        ]
        body = {"schema": schema.text, "schemaType": schema.kind, **({"references": references} if references else {})}
        path = f"/subjects/{quote(subject, safe='')}"
        found = self._call("POST", f"{path}/versions" if registers else path, body, what=f"subject {subject!r:.200}")
        return _CONFLUENT_HEADER.pack(_CONFLUENT_MAGIC, _whole(found, "id"))

    def _version(self, reference: SchemaReference, registers: bool) -> int:
        """The version of a reference under its subject, where it is registered first."""
        if reference.version:
            return reference.version
        subject = reference.subject or reference.name
        if registers:
            self._find_header(subject, reference.schema, registers=True)
        body = {"schema": reference.schema.text, "schemaType": reference.schema.kind}
        return _whole(self._call("POST", f"/subjects/{quote(subject, safe='')}", body, what=f"{subject!r}"), "version")

    def _find_schema(self, schema_id: Any) -> Schema:
        if isinstance(schema_id, str):
            what = f"schema {schema_id}, which a header names by its GUID: some registries, Karapace's, know no GUIDs"
            return self._schema_of(self._call("GET", f"/schemas/guids/{schema_id}", None, what=what), [0])
        found = self._call("GET", f"/schemas/ids/{schema_id}", None, what=f"schema {schema_id}")
        return self._schema_of(found, [0])

    def newest(self, subject: str) -> Schema:
        """The newest version. Of Protobuf, a registry tells the description only if it knows `format=serialized`."""
        return self._schema_of(self._registered(subject, "latest", f"subject {subject!r:.200}"), [0])

    def _registered(self, subject: str, version: int | str, what: str) -> Mapping[str, Any]:
        """A version of a subject. Karapace tells a description by a schema's id only: that takes a second request."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}{_SERIALIZED}"
        found = self._call("GET", path, None, what=what)
        if found.get("schemaType") == "PROTOBUF" and ";" in str(found.get("schema")):  # the file's text
            described = self._call("GET", f"/schemas/ids/{_whole(found, 'id')}{_SERIALIZED}", None, what=what)
            return {**found, "schema": described.get("schema")}
        return found

    def _schema_of(self, found: Mapping[str, Any], seen: list[int]) -> Schema:
        kind = found.get("schemaType", "AVRO")
        if kind not in ("AVRO", "JSON", "PROTOBUF") or not isinstance(found.get("schema"), str):
            raise InvalidError(ErrorCode.INVALID_CONFIG, f"{self._url} tells a schema of kind {kind!r:.50}")
        references: list[SchemaReference] = []
        for each in found.get("references") or ():
            seen[0] += 1
            check(seen[0] <= _REFERENCES_MAX, f"a schema of {self._url} has more than {_REFERENCES_MAX} references")
            subject = str(each["subject"])
            answer = self._registered(subject, _whole(each, "version"), f"reference {subject!r:.200}")
            made = self._schema_of(answer, seen)
            references.append(SchemaReference(str(each["name"]), made, subject, int(each["version"])))
        return Schema(kind, found["schema"], tuple(references))

    def _call(self, method: str, path: str, body: object, *, what: str) -> Mapping[str, Any]:
        sent = b"" if body is None else json.dumps(body).encode()
        try:
            status, answer = self._send(method, self._url + path, self._sent, sent)
        except NoAnswerError as error:
            raise UnavailableError(
                ErrorCode.STORAGE_UNAVAILABLE, f"the registry {self._url} did not answer for {what}: {error!s:.300}"
            ) from error
        try:
            document = json.loads(answer) if len(answer) <= _ANSWER_BYTES_MAX else None
        except ValueError:
            document = None
        found = document if isinstance(document, dict) else {}
        if status == 200 and found:
            return found
        raise _refusal(self._url, what, status, found)

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises NoAnswerError."""
        if self._connections is None:
            self._connections = Connections(_TIMEOUT_S)
        answer = self._connections.send(method, url, headers, body)
        return answer.status, answer.body


def framed(registry: Registry, header: bytes, data: bytes) -> bytes:
    """A value as `split` takes it, of a record whose header names the schema. Raises CorruptError for another header.

    Other formats have the same bytes in front of the payload, so the header goes there.
    """
    try:
        rest = registry.split(header)[1]
        if rest and registry.without_indexes(rest):
            raise CorruptError(ErrorCode.CORRUPT_BATCH, "it goes on behind the schema's id")
    except PenstockError as error:
        raise CorruptError(
            ErrorCode.CORRUPT_BATCH, f"the header {header[:40]!r} names no schema: {error.message:.300}"
        ) from error
    return header + data


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint of at most 32 bits, and the place behind it. Raises CorruptError."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise CorruptError(ErrorCode.CORRUPT_BATCH, f"the bytes {data[:16]!r} do not begin with Protobuf's message indexes")


def uuid_of(data: bytes) -> str:
    """16 bytes as a UUID is written."""
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def varint(number: int) -> bytes:
    """A number as a varint."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _whole(found: Mapping[str, Any], name: str) -> int:
    number = found.get(name)
    if isinstance(number, int) and 0 <= number < 2**32:
        return number
    raise InvalidError(ErrorCode.INVALID_CONFIG, f"the registry answers {name}={number!r:.50}: is its URL right?")


def not_framed(data: bytes, wanted: str) -> PenstockError:
    """The error of bytes that are not in a registry's format."""
    return CorruptError(
        ErrorCode.CORRUPT_BATCH,
        f"the bytes {bytes(data[:16])!r} do not begin with {wanted}: their producer wrote without a registry, or for "
        "another one",
    )


def _refusal(url: str, what: str, status: int, found: Mapping[str, Any]) -> PenstockError:
    said = f"{found.get('message', '')!s:.500} (status {status}, error_code {found.get('error_code')})"
    if status in (401, 403):
        return AccessDeniedError(
            ErrorCode.ACCESS_DENIED,
            f"the registry {url} refuses {what}: {said}; give auth= or token= with the right",
        )
    if status in (408, 429) or status >= 500:
        return UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, f"the registry {url} failed for {what}: {said}")
    ways = {
        _UNKNOWN_SCHEMA: "register the schema, let registers=True do so, or give the registry of the producer",
        _UNKNOWN_SUBJECT: "register the schema, or let registers=True do so",
        _UNKNOWN_VERSION: "register the schema that it refers to",
    }
    way = ways.get(found.get("error_code", 0), "change the schema, or the compatibility of the subject")
    return InvalidError(ErrorCode.INVALID_CONFIG, f"the registry {url} refuses {what}: {said}; {way}")
