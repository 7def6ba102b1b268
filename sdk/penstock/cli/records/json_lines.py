"""Records as lines of JSON: `consume --json` writes them, and `produce --format json` reads them back, byte for byte.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp_ms": 1, "key": "k", "value": "v", "headers": [["h", "x"]]}

Plain text stays text, with escapes of JSON for the characters that a terminal would obey. Other bytes are base64 under
`key_base64`, `value_base64` or, in a header, `{"base64": "…"}`.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.cli.records.line_record import LineRecord
from penstock.model import ConsumerRecord
from penstock_core.text import escaped_json, parse_json, why_no_json

_NOT_PLAIN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # as the API: base64 rather than control characters
_TAKEN = frozenset(("partition", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers"))
_PASSED_OVER = frozenset(("topic", "offset"))  # the record gets those of its new place


def json_line(record: ConsumerRecord) -> bytes:
    """The record as a line."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": [[name, header_value(value)] for name, value in record.headers],
    }
    return escaped_json(json.dumps(document, ensure_ascii=False)).encode() + b"\n"


def parse_json_line(line: bytes) -> LineRecord:
    """The record of a line. Raises ValueError, which says what is wrong."""
    try:
        document = parse_json(line.decode())
    except ValueError as error:
        raise ValueError(why_no_json(error)) from None
    if not isinstance(document, dict):
        raise ValueError("no JSON object")
    unknown = sorted(document.keys() - _TAKEN - _PASSED_OVER)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r:.60}: there are {', '.join(sorted(_TAKEN))}")
    if not {"value", "value_base64"} & document.keys():
        raise ValueError("neither value nor value_base64: give one (null is a tombstone)")
    return LineRecord(
        _bytes_of(document, "key"),
        _bytes_of(document, "value"),
        [_header(each) for each in _list(document.get("headers", []))],
        _whole(document, "partition"),
        _timestamp_ms(document),
    )


def _timestamp_ms(document: Mapping[str, Any]) -> int | None:
    timestamp_ms = _whole(document, "timestamp_ms")
    if timestamp_ms is not None and timestamp_ms < -1:
        raise ValueError(f"timestamp_ms={timestamp_ms}: give milliseconds since 1970, or -1 for none")
    return timestamp_ms


def _text_or_base64(name: str, content: bytes | None) -> dict[str, str | None]:
    text = _plain_text(content)
    if content is None or text is not None:
        return {name: text}
    return {f"{name}_base64": base64.b64encode(content).decode()}


def header_value(content: bytes | None) -> str | dict[str, str] | None:
    """A header's value as lines have it."""
    text = _plain_text(content)
    return text if content is None or text is not None else {"base64": base64.b64encode(content).decode()}


def _plain_text(content: bytes | None) -> str | None:
    try:
        text = None if content is None else content.decode()
    except UnicodeDecodeError:
        return None
    return None if text is None or _NOT_PLAIN.search(text) else text


def _bytes_of(document: Mapping[str, Any], name: str) -> bytes | None:
    if name in document and f"{name}_base64" in document:
        raise ValueError(f"both {name} and {name}_base64: give one")
    if f"{name}_base64" in document:
        return _decoded(document[f"{name}_base64"], f"{name}_base64")
    return _encoded(document.get(name), name)


def _header(given: object) -> tuple[str, bytes | None]:
    if not (isinstance(given, list) and len(given) == 2 and isinstance(given[0], str)):
        raise ValueError(f'header {given!r:.60}: give ["name", "value"]')
    name, value = given
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return name, _decoded(value["base64"], f"header {name:.60}")
    return name, _encoded(value, f"header {name:.60}")


def _list(given: object) -> list[Any]:
    if not isinstance(given, list):
        raise ValueError(f"headers={given!r:.60}: give a list")
    return given


def _whole(document: Mapping[str, Any], name: str) -> int | None:
    number = document.get(name)
    if number is not None and type(number) is not int:
        raise ValueError(f"{name}={number!r:.60}: give a whole number")
    return number


def _encoded(text: object, what: str) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{what}={text!r:.60}: give text or null")
    return text.encode()  # a lone surrogate is a ValueError too


def _decoded(text: object, what: str) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error:
        raise ValueError(f"{what}={text!r:.60} is not base64") from None
