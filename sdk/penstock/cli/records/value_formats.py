"""`--value-format` of `penstock consume`: values of Avro or JSON Schema, written as JSON.

The schema comes from a registry, or from a file if the producer used none. A Protobuf message has no names of its own,
and a command has no class that protoc generated, so that format is for programs.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any

import click

from penstock.arguments import check
from penstock.errors import InvalidError
from penstock.schemas.glue import GlueRegistry
from penstock.schemas.registry import ConfluentRegistry, Registry
from penstock.schemas.serdes import AvroSerde, JsonSerde
from penstock.schemas.serialization import Field
from penstock_core.errors import ErrorCode
from penstock_core.records.codec import Headers

FORMATS = ("avro", "json")
AUTH_VARIABLE = "PENSTOCK_REGISTRY_AUTH"  # user:password, which has no place among a command's arguments
_GLUE = "glue:"
_SCHEMA_BYTES_MAX = 1_000_000


class AsJson:
    """A deserializer that gives JSON text as bytes, as the writers of records take them."""

    def __init__(self, serde: AvroSerde | JsonSerde) -> None:
        self._serde = serde

    def framed(self, field: Field, data: bytes, headers: Headers) -> bytes:
        """As the serde's."""
        return self._serde.framed(field, data, headers)

    def deserialize(self, topic: str, field: Field, data: bytes) -> bytes:
        """The value as JSON. Raises as the serde."""
        return _json(self._serde.deserialize(topic, field, data))

    def deserialize_now(self, topic: str, field: Field, data: bytes) -> bytes:
        """As `deserialize`, and raises LookUpFirst."""
        return _json(self._serde.deserialize_now(topic, field, data))


def deserializer_of(name: str | None, registry: str | None, schema_path: str | None) -> AsJson | None:
    """What the options say; None if they say nothing. Raises UsageError, and InvalidError for a registry or schema."""
    if name is None:
        if registry is not None or schema_path is not None:
            raise click.UsageError(f"--registry and --schema need --value-format: {' or '.join(FORMATS)}")
        return None
    if name == "avro" and registry is None and schema_path is None:
        raise click.UsageError("--value-format avro needs --registry, or the --schema that the producer used")
    schema = None if schema_path is None else _schema(schema_path)
    found = None if registry is None else _registry(registry)
    return AsJson((AvroSerde if name == "avro" else JsonSerde)(schema, registry=found))


def _registry(text: str) -> Registry:
    if text.startswith(_GLUE):
        return GlueRegistry(text.removeprefix(_GLUE))
    user, _, password = os.environ.get(AUTH_VARIABLE, "").partition(":")
    return ConfluentRegistry(text, auth=(user, password) if user else None)


def _schema(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_SCHEMA_BYTES_MAX + 1)
        check(
            len(data) <= _SCHEMA_BYTES_MAX,
            f"schema {path!r:.300} has more than {_SCHEMA_BYTES_MAX:,} bytes: give one schema, or --registry",
        )
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(ErrorCode.INVALID_CONFIG, f"schema {path!r:.300} cannot be read: {error}") from error


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=_plain).encode()


def _plain(value: Any) -> str:
    """What JSON has no form for: times in ISO 8601, decimals and UUIDs as text, bytes as base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
