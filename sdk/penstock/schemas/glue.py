"""AWS Glue's Schema Registry and its wire format: a byte 3, a byte of compression, and the schema version's id.

03 | 00 plain, 05 zlib | 16 bytes of UUID | (Protobuf: the message's number) | payload
"""

import zlib
from collections.abc import Callable
from typing import Any, Literal

from penstock.arguments import check
from penstock.errors import AccessDeniedError, CorruptError, InvalidError, UnavailableError
from penstock.schemas.registry import Registry, Schema, not_framed, read_varint, uuid_of, varint
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_DECODED_BYTES_MAX

_MAGIC, _PLAIN, _ZLIB = 3, 0, 5
_HEADER_BYTES = 18
_TIMEOUT_S = 5
_MISSING, _DENIED = "EntityNotFoundException", "AccessDeniedException"
_FINAL = ("InvalidInputException", "ValidationException", "ResourceNumberLimitExceededException")

Compatibility = Literal["NONE", "DISABLED", "BACKWARD", "BACKWARD_ALL", "FORWARD", "FORWARD_ALL", "FULL", "FULL_ALL"]


class GlueRegistry(Registry):
    """A registry of AWS Glue.

        registry = GlueRegistry("orders-registry", region="eu-west-1")

    A schema has the name of its topic; the one of keys ends with `-key`. A new schema gets the `compatibility`. Writing
    takes the rights glue:GetSchemaByDefinition, and with `registers` glue:CreateSchema and glue:RegisterSchemaVersion;
    reading takes glue:GetSchemaVersion. `client` replaces botocore's. The values that it writes are not compressed;
    those that Java's serializers compressed by zlib are read.
    """

    def __init__(
        self,
        registry: str = "default-registry",
        *,
        region: str | None = None,
        compatibility: Compatibility = "BACKWARD",
        client: Any = None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        check(isinstance(registry, str) and bool(registry), f"registry={registry!r:.100}: give the name of a registry")
        super().__init__(now_ms)
        self.name = f"glue:{registry}"
        self._registry = registry
        self._region = region
        self._compatibility = compatibility
        self._client = client

    def subject(self, topic: str, field: str) -> str:
        """The topic's name, as Glue's own serializers have it."""
        return topic if field == "value" else f"{topic}-{field}"

    def split(self, data: bytes) -> tuple[str, bytes]:
        """The schema version's id, and the payload without its compression."""
        if len(data) < _HEADER_BYTES or data[0] != _MAGIC or data[1] not in (_PLAIN, _ZLIB):
            raise not_framed(data, "a byte 3, a byte 0 or 5, and 16 bytes of schema version id")
        payload = data[_HEADER_BYTES:]
        return uuid_of(bytes(data[2:_HEADER_BYTES])), payload if data[1] == _PLAIN else _inflated(payload)

    def indexes(self, path: tuple[int, ...], names: tuple[str, ...], full_name: str) -> bytes:
        """The message's place among all of the file in the order of their full names."""
        del path
        return varint(sorted(names).index(full_name))

    def without_indexes(self, payload: bytes) -> bytes:
        """Behind one varint."""
        return payload[read_varint(payload, 0)[1] :]

    def _find_header(self, subject: str, schema: Schema, registers: bool) -> bytes:
        where = {"SchemaName": subject, "RegistryName": self._registry}
        found = self._version(where, schema)
        if found is None and registers:
            found = self._register(where, schema)
        if found is None:
            raise InvalidError(
                ErrorCode.INVALID_CONFIG,
                f"{self.name} has no such version of schema {subject!r:.200}: register it, or let registers=True do so",
            )
        status = found.get("Status") or found.get("SchemaVersionStatus")
        version = str(found["SchemaVersionId"])
        if status == "PENDING":
            why = f"{self.name} still checks version {version} of schema {subject!r:.200}"
            raise UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, why)
        check(
            status == "AVAILABLE",
            f"{self.name} refuses version {version} of schema {subject!r:.200} ({status}): change the schema, or its "
            f"compatibility",
        )
        return bytes([_MAGIC, _PLAIN]) + bytes.fromhex(version.replace("-", ""))

    def _version(self, where: dict[str, str], schema: Schema) -> Any:
        return self._call("get_schema_by_definition", missing=None, SchemaId=where, SchemaDefinition=schema.text)

    def _register(self, where: dict[str, str], schema: Schema) -> Any:
        found = self._call(
            "register_schema_version", missing=None, SchemaId=where, SchemaDefinition=schema.text
        )  # None: the schema has no version yet
        return found or self._call(
            "create_schema",
            RegistryId={"RegistryName": where["RegistryName"]},
            SchemaName=where["SchemaName"],
            DataFormat=schema.kind,
            Compatibility=self._compatibility,
            SchemaDefinition=schema.text,
        )

    def newest(self, subject: str) -> Schema:
        """The newest version of the schema of that name."""
        where = {"SchemaName": subject, "RegistryName": self._registry}
        return self._read(SchemaId=where, SchemaVersionNumber={"LatestVersion": True})

    def _find_schema(self, schema_id: Any) -> Schema:
        return self._read(SchemaVersionId=schema_id)

    def _read(self, **which: Any) -> Schema:
        found = self._call("get_schema_version", **which)
        return Schema(found["DataFormat"], found["SchemaDefinition"])

    def _call(self, name: str, missing: object = ..., **options: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._open(), name)(**options)
        except ClientError as error:
            code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
            if code == _MISSING and missing is None:
                return None
            raise _refused(self.name, name, code, message) from error
        except BotoCoreError as error:
            raise UnavailableError(
                ErrorCode.STORAGE_UNAVAILABLE, f"{self.name} could not be asked: {error!s:.300}"
            ) from error

    def _open(self) -> Any:
        if self._client is None:
            import botocore.session  # slow to import
            from botocore.config import Config

            config = Config(connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"mode": "standard"})
            session = botocore.session.Session()
            self._client = session.create_client("glue", region_name=self._region, config=config)
        return self._client


def _inflated(payload: bytes) -> bytes:
    """Raises CorruptError for bytes that are not zlib's, or too many."""
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(payload, BATCH_DECODED_BYTES_MAX)
    except zlib.error as error:
        raise CorruptError(ErrorCode.CORRUPT_BATCH, f"the payload is not zlib's: {error}") from error
    if not inflate.eof:
        why = f"the payload is cut, or has more than {BATCH_DECODED_BYTES_MAX} bytes"
        raise CorruptError(ErrorCode.CORRUPT_BATCH, why)
    return found


def _refused(registry: str, call: str, code: str, message: str) -> PenstockError:
    told = f"{registry} refuses {call}: {code} {message:.500}"
    if code == _DENIED:
        action = "glue:" + "".join(word.title() for word in call.split("_"))
        return AccessDeniedError(ErrorCode.ACCESS_DENIED, f"{told}; allow {action} to the caller")
    if code == _MISSING:
        return InvalidError(ErrorCode.INVALID_CONFIG, f"{told}; give the registry of the producer, or make it")
    if code in _FINAL:
        return InvalidError(ErrorCode.INVALID_CONFIG, told)
    return UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, told)
