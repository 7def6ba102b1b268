"""Records between JSON and bytes. Plain text stays text, and other bytes become base64."""

import base64
import binascii
import re
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_handlers.edge.models.request_models import Base64, RecordContent

# Control characters but tab, newline and carriage return. They are no text, and JSON makes each six times as long.
_NOT_PLAIN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def key_of(record: RecordContent, where: str) -> bytes | None:
    """The record's key. Raises INVALID_REQUEST if `key` and `key_base64` are both given, or the latter is no base64."""
    if record.key is not None and record.key_base64 is not None:
        raise _both(where, "key")
    return _decoded(record.key_base64, f"{where}.key_base64") if record.key_base64 is not None else _utf8(record.key)


def value_of(record: RecordContent, where: str) -> bytes | None:
    """The record's value; a null value is a tombstone. Raises as `key_of`, and INVALID_REQUEST if none is given."""
    given = {"value", "value_base64"} & record.model_fields_set
    if not given:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{where} has neither value nor value_base64: give one (null is a tombstone)"
        )
    if len(given) == 2:
        raise _both(where, "value")
    if record.value_base64 is not None:
        return _decoded(record.value_base64, f"{where}.value_base64")
    return _utf8(record.value)


def headers_of(record: RecordContent, where: str) -> list[tuple[str, bytes | None]]:
    """Names and values of the record's headers, in order."""
    return [(name, _header_value(value, where)) for name, value in record.headers]


def named(name: str, data: bytes | None) -> dict[str, str | None]:
    """`{name: text}` or `{name_base64: …}`."""
    text = _plain_text(data) if data is not None else None
    if data is None or text is not None:
        return {name: text}
    return {f"{name}_base64": base64.b64encode(data).decode()}


def header_json(name: str, value: bytes | None) -> list[Any]:
    """A header as the API shows it."""
    text = _plain_text(value) if value is not None else None
    if value is None or text is not None:
        return [name, text]
    return [name, {"base64": base64.b64encode(value).decode()}]


def _header_value(value: str | Base64 | None, where: str) -> bytes | None:
    return _decoded(value.base64, f"{where}.headers") if isinstance(value, Base64) else _utf8(value)


def _plain_text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if _NOT_PLAIN.search(text) else text


def _utf8(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{where}={text!r:.60} is not base64: {error}") from error


def _both(where: str, name: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, f"{where} has both {name} and {name}_base64: give one")
