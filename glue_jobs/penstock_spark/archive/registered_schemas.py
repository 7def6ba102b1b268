"""Schemas of a registry, for values that name theirs: in Confluent's wire format, or AWS Glue's.

    driver      newest version of the subject ─ the columns of the table; the plan has the schema, and nothing secret
    executor    id in front of an Avro value ─ memory, the table's folder `_penstock/schemas`, the registry

A schema never changes under its id. So the first task that meets an id puts the schema into the table's folder, and no
later task, and no rebuild, asks the registry for it. JSON and Protobuf need no writer's schema.

The job calls a registry as a subscription calls an endpoint (https_target.py): by TLS, and at public addresses only,
save on a local stack. The secret of a registry lies in Secrets Manager, and has the registry's URL: no other host gets
it.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, partial
from typing import Any

import urllib3

from penstock.errors import InvalidError, LookUpFirst, as_sdk_error
from penstock.schemas.avro_shape import avro_reader
from penstock.schemas.glue import GlueRegistry
from penstock.schemas.registry import ConfluentRegistry, Registry, Schema, SchemaReference, framed
from penstock.schemas.serdes import flattened, message_place, parse_avro
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.targets.public_address import parse_networks
from penstock_service.adapters.aws import Storage
from penstock_service.adapters.https_target import HttpsEndpoints
from penstock_service.adapters.system import SystemClock
from penstock_spark.archive.protobuf_messages import descriptor_of, message_reader, schema_text
from penstock_spark.archive.typed_columns import REGISTERED, SCHEMA_BYTES_MAX, known_types
from penstock_spark.archive.typing_values import Framer
from penstock_spark.result_store import ResultStore, open_results

UNKNOWN_IDS_MAX = 100  # a task asks for so many: each value that only looks like a registry's could name one
_GLUE = "glue:"
_TIMEOUT_MS = 10_000
_WAITS_MS = 60_000  # that a process gives one registry in all: a slow one stops its topics, and not the run
_QUICK_MS = 1_000  # of each call, which do not count: many topics of a quick one take their time
_NOT_ASKED = "not_asked"  # the secret or the address is not right, so the registry has said nothing about an id
_LOCAL = "127.0.0.0/8,::1/128"
_REGISTRIES_MAX = 16
_FIRST_MESSAGE = (b"\x00", b"\x02\x00")  # both ways to write the path [0]

Registries = Callable[[str, str | None], Registry]  # by the name of a registry, and of a secret


@lru_cache(_REGISTRIES_MAX)
def open_registry(storage: Storage, name: str, secret: str | None) -> Registry:
    """The registry `https://…` or `glue:NAME`. Makes no call. Raises INVALID_CONFIG for a name that is none."""
    if name.startswith(_GLUE):
        return GlueRegistry(name.removeprefix(_GLUE), region=storage.region, client=_client("glue", storage))
    return _CheckedRegistry(name, storage, secret)


def registered_schema(registries: Registries, place: str, topic: str, secret: str | None) -> str:
    """The schema of `URL`, `URL#subject` or `URL#subject#message`, as a plan has it: the newest version, in one text.

    The subject is by default the one of the topic's values. Raises INVALID_CONFIG, ACCESS_DENIED, and
    STORAGE_UNAVAILABLE if the registry does not answer.
    """
    name, _, rest = place.partition("#")
    subject, _, message = rest.partition("#")
    registry = registries(name, secret)
    found = registry.newest(subject or registry.subject(topic, "value"))
    text = _ALONE[found.kind](found, message)
    if len(text) > SCHEMA_BYTES_MAX:  # the plan has it, and each task gets the plan
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the schema of {place:.200} has {len(text):,} bytes with all that it refers to: {SCHEMA_BYTES_MAX:,} are "
            "the most",
        )
    return json.dumps({"registry": name, "secret": secret, "kind": found.kind.lower(), "schema": text})


def read_schema(kind: str, place: str, topic: str, storage: Storage) -> str:
    """The text of the schema of that format at that place: a file, `s3://…`, or a registry's URL.

    Raises INVALID_CONFIG with the way out.
    """
    if kind == REGISTERED:
        return registered_schema(partial(open_registry, storage), place, topic, storage.registry_secret)
    path, _, message = place.partition("#") if kind == "protobuf" else (place, "", "")
    folder, _, name = path.rpartition("/")
    data = open_results(folder or ("/" if path.startswith("/") else "."), storage).get(name)
    try:
        if data is not None and len(data) <= SCHEMA_BYTES_MAX:
            return schema_text(data, message) if kind == "protobuf" else data.decode()
    except UnicodeDecodeError:
        pass
    raise PenstockError(
        ErrorCode.INVALID_CONFIG,
        f"schema {kind}:{place:.200}: there is no text of at most {SCHEMA_BYTES_MAX} bytes at that place",
    )


def value_reader(text: str, lake: ResultStore | None, table: str, registries: Registries) -> Callable[[bytes], Any]:
    """A function that reads a value by the schema of a plan. It raises for bytes that are no such value.

    `lake` keeps the writers' schemas in the table's folder; without one, the registry's memory does. It passes on
    ACCESS_DENIED and STORAGE_UNAVAILABLE: they say nothing about the value.
    """
    document = json.loads(text)
    registry = registries(document["registry"], document["secret"])
    if document["kind"] == "json":
        import orjson

        return lambda data: orjson.loads(registry.split(data)[1])
    if document["kind"] == "protobuf":
        return _protobuf_reader(document["schema"], registry)
    return _avro_reader(document["schema"], registry, _WriterSchemas(registry, lake, table))


def header_framer(text: str, registries: Registries) -> Framer | None:
    """The header that may name a value's schema, and what puts it in front of the value; None if there is none."""
    document = json.loads(text)
    registry = registries(document["registry"], document["secret"])
    name = registry.id_headers.get("value")
    return None if name is None else (name, partial(framed, registry))


def _avro_reader(text: str, registry: Registry, schemas: "_WriterSchemas") -> Callable[[bytes], Any]:
    reader = parse_avro(json.loads(text), ())
    readers: dict[Hashable, Callable[[bytes], Any] | str] = {}  # or why there is none: the next value asks nobody

    def read(data: bytes) -> Any:
        schema_id, payload = registry.split(data)
        found = readers.get(schema_id)
        if found is None:
            schema = schemas.find(schema_id)
            found = readers[schema_id] = _reader_of(schema, schema_id, reader)
        if isinstance(found, str):
            raise ValueError(found)
        return found(payload)

    return read


def _reader_of(schema: Schema, schema_id: Hashable, reader: Any) -> Callable[[bytes], Any] | str:
    """The reader of this schema, or why there is none: a stranger's schema must not stop a topic's archive."""
    if schema.kind != "AVRO":
        return f"schema {schema_id} is of kind {schema.kind}, and the table's is of Avro"
    try:
        writer = parse_avro(_parsed(schema.text), schema.references)
    except PenstockError as error:
        return f"schema {schema_id}: {error.message:.300}"
    read = avro_reader(writer)
    return lambda payload: read(payload, reader)


def _protobuf_reader(text: str, registry: Registry) -> Callable[[bytes], Any]:
    descriptor = descriptor_of(text)
    read = message_reader(text)
    path, names = message_place(descriptor)
    own = _FIRST_MESSAGE if path == (0,) else (registry.indexes(path, names, descriptor.full_name),)

    def read_framed(data: bytes) -> Any:
        payload = registry.split(data)[1]
        rest = registry.without_indexes(payload)
        if payload[: len(payload) - len(rest)] not in own:
            raise ValueError(f"another message than {descriptor.full_name} of its file")
        return read(rest)

    return read_framed


class _WriterSchemas:
    """The schemas behind ids: from the table's folder, or else from the registry, which is asked once for each."""

    def __init__(self, registry: Registry, lake: ResultStore | None, table: str) -> None:
        self._registry = registry
        self._lake = lake
        self._folder = f"{table}/_penstock/schemas/{hashlib.sha256(registry.name.encode()).hexdigest()[:16]}"
        self._unknown: set[Hashable] = set()
        self._kept: frozenset[str] | None = None  # the names in the folder, once there are too many unknown ids

    def find(self, schema_id: Hashable) -> Schema:
        """The schema. Raises ValueError for an id that the registry does not know.

        Behind `UNKNOWN_IDS_MAX` of them it knows those of the folder alone.
        """
        path = f"{self._folder}/{schema_id}.json"
        if schema_id in self._unknown:
            raise ValueError(f"the registry has no schema {schema_id}")
        if len(self._unknown) >= UNKNOWN_IDS_MAX and f"{schema_id}.json" not in self._kept_names():
            raise ValueError(f"the registry has no schema {schema_id}, or is not asked: {UNKNOWN_IDS_MAX} were unknown")
        kept = None if self._lake is None else self._lake.get(path)
        if kept is not None:
            return _schema_of(json.loads(kept))
        try:
            found = self._ask(schema_id)
        except PenstockError as error:
            if error.code is not ErrorCode.INVALID_CONFIG or error.facts.get(_NOT_ASKED):
                raise
            self._unknown.add(schema_id)
            raise ValueError(f"the registry has no schema {schema_id}: {error.message:.200}") from error
        if self._lake is not None:
            self._lake.put_new(path, json.dumps(_document_of(found)).encode())
        return found

    def _kept_names(self) -> frozenset[str]:
        if self._kept is None:
            self._kept = frozenset(() if self._lake is None else self._lake.names(f"{self._folder}/"))
        return self._kept

    def _ask(self, schema_id: Hashable) -> Schema:
        while True:
            try:
                return self._registry.schema(schema_id)
            except LookUpFirst as missing:
                missing.look_up()


class _CheckedRegistry(ConfluentRegistry):
    """A registry whose host is checked, and that gets its secret only if the secret names it."""

    def __init__(self, url: str, storage: Storage, secret: str | None) -> None:
        super().__init__(url)
        self._storage = storage
        self._secret = secret
        self._proof: Mapping[str, str] | None = None
        # An emulator's stage is on this machine, as its registry may be.
        allowed = parse_networks("" if storage.endpoint_url is None else _LOCAL)
        self._clock = SystemClock()
        self._left_ms: float = _WAITS_MS
        self._endpoints = HttpsEndpoints(self._clock, allowed_private=allowed)

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        del method, body  # the archive only reads
        if self._left_ms <= 0:
            raise as_sdk_error(
                PenstockError(
                    ErrorCode.STORAGE_UNAVAILABLE,
                    f"{self._url} has let this process wait for {_WAITS_MS // 1_000} s: the next run asks it again",
                )
            )
        started_ms = self._clock.monotonic_ms()
        try:
            if self._proof is None:
                self._proof = _proof(self._storage, self._secret, self._url) if self._secret else {}
            answer = self._endpoints.get(url, {**headers, **self._proof}, _TIMEOUT_MS)
        except PenstockError as error:
            if error.code is ErrorCode.INVALID_CONFIG:
                raise InvalidError(error.code, error.message, **{_NOT_ASKED: True}) from error
            raise as_sdk_error(error) from error
        finally:
            self._left_ms -= max(0, self._clock.monotonic_ms() - started_ms - _QUICK_MS)
        return answer.status, answer.body


def _proof(storage: Storage, secret: str, url: str) -> Mapping[str, str]:
    """The headers that a secret gives: `{"url", "username", "password"}` or `{"url", "token"}`. One GetSecretValue."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        text = _client("secretsmanager", storage).get_secret_value(SecretId=secret)["SecretString"]
    except (BotoCoreError, ClientError, KeyError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"secret {secret!r:.200} cannot be read: {error!s:.300}; name a secret of Secrets Manager with text, and "
            "allow secretsmanager:GetSecretValue to the job (the stage's setting registry_secret)",
        ) from error
    try:
        found = json.loads(text)
        if str(found["url"]).rstrip("/") != url:
            return {}
        if "token" in found:
            return {"Authorization": f"Bearer {found['token']}"}
        made: Mapping[str, str] = urllib3.make_headers(basic_auth=f"{found['username']}:{found['password']}")
        return {"Authorization": made["authorization"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"secret {secret!r:.200} is not of the form that a registry needs: give JSON with url, username and "
            "password, or with url and token",
        ) from None  # its message could hold the secret


def _client(service: str, storage: Storage) -> Any:
    import boto3

    return boto3.client(
        service,
        region_name=storage.region,
        endpoint_url=storage.endpoint_url,
        aws_access_key_id=storage.access_key,
        aws_secret_access_key=storage.secret_key,
    )


def _document_of(schema: Schema) -> dict[str, Any]:
    references = [{"name": each.name, **_document_of(each.schema)} for each in schema.references]
    return {"kind": schema.kind, "text": schema.text, "references": references}


def _schema_of(document: Mapping[str, Any]) -> Schema:
    references = tuple(SchemaReference(each["name"], _schema_of(each)) for each in document["references"])
    return Schema(document["kind"], document["text"], references)


# One text of a schema and of those that it names.


def _avro_alone(schema: Schema, message: str) -> str:
    """The schema, with the definition of each named type at its first mention."""
    _no_message(message, "Avro")
    document = _parsed(schema.text)
    known: dict[str, tuple[Mapping[str, Any], str]] = {}
    for each in flattened(schema.references):
        known |= known_types(_parsed(each.schema.text))
    defined: set[str] = set()

    def alone(node: Any, namespace: str) -> Any:
        if isinstance(node, str):
            full = node if "." in node or not namespace else f"{namespace}.{node}"
            name = next((each for each in (full, node) if each in known and each not in defined), None)
            if name is None or full in defined:
                return node
            outer, _, short = name.rpartition(".")
            return alone({**known[name][0], "name": short, "namespace": outer}, namespace)
        if isinstance(node, list):
            return [alone(each, namespace) for each in node]
        if not isinstance(node, Mapping):
            return node
        if node.get("type") in ("record", "error", "enum", "fixed"):
            name, own = str(node.get("name")), str(node.get("namespace", namespace))
            full = name if "." in name or not own else f"{own}.{name}"
            if full in defined:
                return full
            defined.add(full)
            inner = full.rpartition(".")[0]
            fields = [{**each, "type": alone(each.get("type"), inner)} for each in node.get("fields", ())]
            return {**node, **({"fields": fields} if "fields" in node else {})}
        return {
            word: alone(inner, namespace) if word in ("type", "items", "values") else inner
            for word, inner in node.items()
        }

    return json.dumps(alone(document, ""))


def _json_alone(schema: Schema, message: str) -> str:
    """The schema, with those that it refers to among its definitions."""
    _no_message(message, "JSON Schema")
    documents = {each.name: _parsed(each.schema.text) for each in flattened(schema.references)}

    def place(name: str) -> str:
        return "#/$defs/" + f"registry:{name}".replace("~", "~0").replace("/", "~1")

    def alone(node: Any, root: str) -> Any:
        if isinstance(node, list):
            return [alone(each, root) for each in node]
        if not isinstance(node, Mapping):
            return node
        found = {word: alone(inner, root) for word, inner in node.items()}
        reference = node.get("$ref")
        if isinstance(reference, str):
            file, _, inside = reference.partition("#")
            named = next((each for each in documents if file == each or file.endswith(f"/{each}")), None)
            start = root if not file else "#" if named is None else place(named)
            found["$ref"] = reference if file and named is None else start + inside
        return found

    document = _parsed(schema.text)
    if not documents or not isinstance(document, Mapping):
        return json.dumps(document)
    definitions = {f"registry:{name}": alone(each, place(name)) for name, each in documents.items()}
    main = alone(document, "#")
    return json.dumps({**main, "$defs": {**main.get("$defs", {}), **definitions}})


def _protobuf_alone(schema: Schema, message: str) -> str:
    """The descriptions of the schema and its imports, and the message: by default the first of the schema's file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    def described(text: str) -> Any:
        try:
            return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (ValueError, DecodeError) as error:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                "the registry tells a .proto file's text, and no description of it (format=serialized): give the "
                "schema as protobuf:order.desc#shop.Order to values without a registry, or use a registry of "
                "Confluent's kind that has the format",
            ) from error

    files = FileDescriptorSet()
    for each in flattened(schema.references):
        file = described(each.schema.text)
        file.name = each.name
        files.file.append(file)
    main = described(schema.text)
    main.name = main.name or "registered.proto"
    files.file.append(main)
    if not message and main.message_type:
        message = ".".join(filter(None, (main.package, main.message_type[0].name)))
    return schema_text(files.SerializeToString(), message)


def _no_message(message: str, kind: str) -> None:
    if message:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"message {message!r:.200}: only Protobuf has messages, and the schema is of {kind}",
        )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"the registry's schema is no JSON: {error!s:.200}") from error


_ALONE: Mapping[str, Callable[[Schema, str], str]] = {
    "AVRO": _avro_alone,
    "JSON": _json_alone,
    "PROTOBUF": _protobuf_alone,
}
