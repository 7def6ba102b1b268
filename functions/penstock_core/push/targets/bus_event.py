"""The EventBridge event of a record. Pure.

```
 source       penstock
 detail-type  orders              the topic, 128 characters at most
 detail       {"topic": "orders", "partition": 0, "offset": 15, "timestamp_ms": 1790000000000,
               "key": "c1", "headers": {"type": ["order"]}, "value": {"id": 1}, "base64": ["key"]}
```

A value that is a JSON object or array goes there as it is, so that a rule's pattern can look into it. Any other value
is a text. A null stays null. Bytes that are no UTF-8 are base64, and `base64` names their fields: `key`, `value`, or
`headers.<name>`, whose values are then all base64. `headers` has an array for each name, because a name may come twice.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.push.batch import PushRecord
from penstock_core.text import parse_json

SOURCE = "penstock"
_DETAIL_TYPE_LENGTH_MAX = 128  # characters
_JSON_STARTS = (b"{", b"[")


@dataclass(frozen=True, slots=True, kw_only=True)
class BusEvent:
    """An event for a bus: its type, and its detail, a JSON text."""

    detail_type: str
    detail: str

    @property
    def size_bytes(self) -> int:
        """The entry's size as EventBridge counts it: source, type and detail in UTF-8."""
        return len(SOURCE) + len(self.detail_type.encode()) + len(self.detail.encode())


def bus_event(record: PushRecord) -> BusEvent:
    """The event of the record. It may be too large for EventBridge: see `size_bytes`."""
    content = record.record
    headers: dict[str, list[bytes | None]] = {}
    for name, value in content.headers:
        headers.setdefault(name, []).append(value)
    encoded: list[str] = []
    key = _text(content.key, "key", encoded)
    texts = {name: _texts(values, f"headers.{name}", encoded) for name, values in headers.items()}
    detail = {
        "topic": record.topic,
        "partition": record.key.partition,
        "offset": content.offset,
        "timestamp_ms": content.timestamp,
        "key": key,
        "headers": texts,
    }
    value_text = _json_value(content.value) or json.dumps(_text(content.value, "value", encoded))
    if encoded:
        detail["base64"] = encoded
    start = json.dumps(detail, separators=(",", ":"))
    return BusEvent(detail_type=record.topic[:_DETAIL_TYPE_LENGTH_MAX], detail=f'{start[:-1]},"value":{value_text}}}')


def _json_value(value: bytes | None) -> str:
    """The text of a JSON object or array as it is, numbers and all; empty for any other value."""
    if value is None or not value.lstrip().startswith(_JSON_STARTS):
        return ""
    try:
        text = value.decode()
        parse_json(text)
    except ValueError:
        return ""
    return text


def _text(data: bytes | None, field: str, encoded: list[str]) -> str | None:
    return _texts([data], field, encoded)[0]


def _texts(values: Sequence[bytes | None], field: str, encoded: list[str]) -> list[str | None]:
    try:
        return [None if value is None else value.decode() for value in values]
    except UnicodeDecodeError:
        encoded.append(field)
        return [None if value is None else base64.b64encode(value).decode() for value in values]
