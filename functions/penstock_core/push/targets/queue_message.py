"""The SQS message of a record. Pure.

The body is the record's value as text. `penstock-encoding` tells where it is not:

| value | body | `penstock-encoding` |
|---|---|---|
| text that SQS takes | the text | |
| other bytes | their base64 | `base64` |
| no bytes | `empty` | `empty` |
| null, a tombstone | `null` | `null` |

The attributes `penstock-topic`, `penstock-partition`, `penstock-offset` and `penstock-timestamp-ms` tell the record's
place and time, and `penstock-key` its key. The record's headers follow as attributes under their own names, those of
its trace context first (trace_context.py), as long as
SQS allows: ten attributes in all, each name once, names of letters, digits, `_`, `-` and `.`, no empty values. Other
headers are left out. Keys and headers are texts where they can be, else of type Binary.

The trace context of records that go to a target. Pure, and without OpenTelemetry: it is two headers.

A record carries its context in the headers `traceparent` and `tracestate` (https://www.w3.org/TR/trace-context/). A
request that brings several records may carry a context of its own only if all of them have the same one.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.limits import QUEUE_ATTRIBUTES_MAX, QUEUE_BYTES_MAX
from penstock_core.push.batch import PushRecord

OWN_PREFIX = "penstock-"
ENCODING = f"{OWN_PREFIX}encoding"
# The characters that SQS takes (#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF).
_TEXT = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_NAME = re.compile(r"(?!AWS\.|AMAZON\.|\.)(?!.*\.\.)[\w.-]{1,256}(?<!\.)", re.ASCII | re.IGNORECASE)
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
TRACE_HEADERS = (TRACEPARENT, TRACESTATE)
# Later versions may be longer, but a record must not make a request that its target refuses.
_LATER = rb"(-[!-~]{0,200})?"
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}" + _LATER)
_TRACESTATE = re.compile(rb"[ -~]{1,512}")  # what W3C asks everybody to take on


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMessage:
    """A message: its body, and its attributes by name. An attribute is a text, a number or bytes."""

    body: str
    attributes: dict[str, str | int | bytes]

    @property
    def size_bytes(self) -> int:
        """The message's size as SQS counts it: the body, and names, types and values of the attributes."""
        return len(self.body.encode()) + sum(_attribute_bytes(*each) for each in self.attributes.items())


def queue_message(record: PushRecord) -> QueueMessage:
    """The message of the record. It may be too large for SQS even without headers: see `size_bytes`."""
    content = record.record
    body, encoding = _body(content.value)
    facts: dict[str, str | int | bytes] = {
        "topic": record.topic,
        "partition": record.key.partition,
        "offset": content.offset,
        "timestamp-ms": content.timestamp,
    }
    if content.key:
        facts["key"] = _text_or_bytes(content.key)
    if encoding:
        facts["encoding"] = encoding
    message = QueueMessage(body=body, attributes={f"{OWN_PREFIX}{name}": fact for name, fact in facts.items()})
    return _with_headers(message, content.headers)


def attribute_type(attribute: str | int | bytes) -> str:
    """SQS's name for the attribute's type."""
    if isinstance(attribute, bytes):
        return "Binary"
    return "Number" if isinstance(attribute, int) else "String"


def _with_headers(message: QueueMessage, headers: Sequence[tuple[str, bytes | None]]) -> QueueMessage:
    attributes, size = dict(message.attributes), message.size_bytes
    for name, value in context_first(headers):
        is_fit = value and name not in attributes and _NAME.fullmatch(name) and not name.startswith(OWN_PREFIX)
        if not value or not is_fit or len(attributes) == QUEUE_ATTRIBUTES_MAX:
            continue
        attribute = _text_or_bytes(value)
        more = _attribute_bytes(name, attribute)
        if size + more <= QUEUE_BYTES_MAX:
            attributes[name] = attribute
            size += more
    return QueueMessage(body=message.body, attributes=attributes)


def _body(value: bytes | None) -> tuple[str, str]:
    """The body, and the encoding, which is empty for a text."""
    if value is None:
        return "null", "null"
    if not value:
        return "empty", "empty"
    text = _text_or_bytes(value)
    return (text, "") if isinstance(text, str) else (base64.b64encode(value).decode(), "base64")


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text if _TEXT.fullmatch(text) else data


def _attribute_bytes(name: str, attribute: str | int | bytes) -> int:
    value = attribute if isinstance(attribute, bytes) else str(attribute).encode()
    return len(name.encode()) + len(attribute_type(attribute)) + len(value)


def common_context(records: Sequence[PushRecord]) -> dict[str, str]:
    """The HTTP headers of a request with these records: those of their context, if all have the same valid one."""
    contexts = {_context(record) for record in records}
    if len(contexts) != 1:
        return {}
    parent, state = contexts.pop()
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return {}
    told = {TRACEPARENT: parent.decode()}
    if state is not None and _TRACESTATE.fullmatch(state):
        told[TRACESTATE] = state.decode()
    return told


def context_first(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers, those of the context before all others: a target that takes only some of them gets these."""
    return sorted(headers, key=lambda header: header[0] not in TRACE_HEADERS)


def _context(record: PushRecord) -> tuple[bytes | None, bytes | None]:
    """The last value of each of the two headers, as OpenTelemetry reads them."""
    known = dict(record.record.headers)
    return known.get(TRACEPARENT), known.get(TRACESTATE)
