"""The body of an HTTPS delivery, and the id by which a receiver knows it again. Pure.

```
 {"subscription": "packing",
  "records": [{"topic": "orders", "partition": 0, "offset": 15, "timestamp_ms": 1790000000000,
               "key": "YzE=", "value": null, "headers": [["type", "b3JkZXI="]], "attempt": 1}]}
```

Keys, values and header values are base64; a null value is a tombstone. In ordered mode all records are of one
partition, in order. A reader passes over fields that it does not know.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import Offset, PartitionKey, SubscriptionId
from penstock_core.text import parse_json

Kind = TypeVar("Kind", str, int, list[Any])

_ID_DIGITS = 40  # hexadecimal: 160 bits
_KINDS = {str: "a text", int: "a whole number", list: "an array"}


class WebhookRecord(NamedTuple):
    """A record of a delivery to an HTTPS endpoint. A value of None is a tombstone.

    `attempt` counts the attempts at the record, from 1, if the service has noted them. In ordered mode it counts
    those at the batch, and begins again when a batch that fails is halved.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookBody:
    """The records of one delivery, with the name of the subscription that sends them."""

    subscription: str
    records: tuple[WebhookRecord, ...]


def webhook_message_id(subscription_id: SubscriptionId, places: Iterable[tuple[PartitionKey, Offset]]) -> str:
    """The id of a delivery of the records at these places: the same in each attempt, another for any other records.

    The offsets count, not only their bounds: a parallel subscription may deliver 5 and 7, and later 5, 6 and 7.
    """
    offsets: dict[PartitionKey, list[Offset]] = {}
    for key, offset in sorted(places):
        offsets.setdefault(key, []).append(offset)
    texts = [f"{key}:{','.join(f'{start}-{end}' for start, end in _ranges(offsets[key]))}" for key in offsets]
    digest = hashlib.sha256(" ".join([subscription_id, *texts]).encode()).hexdigest()
    return f"msg_{digest[:_ID_DIGITS]}"


def encode_webhook_body(body: WebhookBody) -> bytes:
    """The body as it is signed and sent: JSON in ASCII, without blanks."""
    document = {"subscription": body.subscription, "records": [_document(record) for record in body.records]}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_webhook_body(data: bytes) -> WebhookBody:
    """The inverse of `encode_webhook_body`. Raises INVALID_REQUEST naming what is no such body."""
    try:
        document = parse_json(data.decode())
    except ValueError as error:
        raise _refused(f"it is not JSON: {error}") from error
    fields = _object(document, "the body")
    records = _field(fields, "records", list, "the body")
    return WebhookBody(
        subscription=_field(fields, "subscription", str, "the body"),
        records=tuple(_record(record, f"records[{number}]") for number, record in enumerate(records)),
    )


def _ranges(offsets: Sequence[Offset]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        start, end = ranges[-1] if ranges else (offset, offset)
        if ranges and offset == end:
            ranges[-1] = (start, offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges


def _document(record: WebhookRecord) -> dict[str, Any]:
    return record._asdict() | {
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _record(document: object, where: str) -> WebhookRecord:
    fields = _object(document, where)
    return WebhookRecord(
        topic=_field(fields, "topic", str, where),
        partition=_field(fields, "partition", int, where),
        offset=_field(fields, "offset", int, where),
        timestamp_ms=_field(fields, "timestamp_ms", int, where),
        key=_bytes(fields.get("key"), f"{where}.key"),
        value=_bytes(fields.get("value"), f"{where}.value"),
        headers=tuple(
            _header(each, f"{where}.headers[{number}]")
            for number, each in enumerate(_field(fields, "headers", list, where))
        ),
        attempt=_field(fields, "attempt", int, where),
    )


def _header(document: object, where: str) -> tuple[str, bytes | None]:
    if not isinstance(document, list) or len(document) != 2 or not isinstance(document[0], str):
        raise _refused(f"{where}={shown(document)} is not a name and a value")
    return document[0], _bytes(document[1], where)


def _object(document: object, where: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise _refused(f"{where}={shown(document)} is not an object")
    return document


def _field(fields: dict[str, Any], name: str, kind: type[Kind], where: str) -> Kind:
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _refused(f"{where}.{name}={shown(value)} is not {_KINDS[kind]}")
    return value


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: object, where: str) -> bytes | None:
    if text is None:
        return None
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise _refused(f"{where}={shown(text)} is not base64")


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, f"this is not the body of a Penstock delivery: {why}")
