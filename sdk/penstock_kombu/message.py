"""A Kombu message as a record, and back.

    value    the message's body, as Celery has serialized it
    headers  content-type, content-encoding, and `kombu`: a JSON object with headers, properties, exchange, routing_key

A record of another form is no message: NotAMessageError.

A message with an ETA is a delayed record. When it comes, its time has come, so its header `eta` is renamed `due`:
Celery's own timer would look at it up to a second later, and let the worker fetch one more message meanwhile. The
task finds the time in `self.request.due`. If the worker's clock is behind, Celery's timer holds the task as ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kombu.utils.json import dumps, loads

from penstock.model import Headers
from penstock.model.share import ShareRecord

CONTENT_TYPE, CONTENT_ENCODING, KOMBU = "content-type", "content-encoding", "kombu"


class NotAMessageError(Exception):
    """The record was not sent by Kombu. The text says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireMessage:
    """The parts of a record that a message fills."""

    value: bytes
    headers: Headers
    deliver_at_ms: int | None


def to_record(message: Mapping[str, Any], exchange: str, routing_key: str) -> WireMessage:
    """The record for a message as `Channel.prepare_message` makes it.

    Celery's header `eta`, which `countdown` sets, too, is the time before which the record does not come.
    """
    body = message["body"]
    headers = message["headers"]
    envelope = {
        "headers": headers,
        "properties": message["properties"],
        "exchange": exchange,
        "routing_key": routing_key,
    }
    return WireMessage(
        value=body.encode() if isinstance(body, str) else bytes(body),
        headers=(
            (CONTENT_TYPE, str(message["content-type"] or "").encode()),
            (CONTENT_ENCODING, str(message["content-encoding"] or "").encode()),
            (KOMBU, dumps(envelope).encode()),
        ),
        deliver_at_ms=_eta_ms(headers.get("eta")),
    )


def from_record(record: ShareRecord, now_ms: int) -> dict[str, Any]:
    """The arguments of a `kombu.Message` that is delivered at `now_ms`. Raises NotAMessageError."""
    found = dict(record.headers)
    if record.value is None or not (found.get(KOMBU) or b""):
        raise NotAMessageError(f"the record has no {'value' if record.value is None else f'header `{KOMBU}`'}")
    try:
        envelope = loads(found[KOMBU])
        return {
            "body": record.value,
            "content_type": (found.get(CONTENT_TYPE) or b"").decode() or None,
            "content_encoding": (found.get(CONTENT_ENCODING) or b"").decode() or None,
            "headers": _at_its_time(dict(envelope["headers"]), now_ms),
            "properties": dict(envelope["properties"]),
            "delivery_info": {
                "exchange": str(envelope["exchange"]),
                "routing_key": str(envelope["routing_key"]),
                "redelivered": record.delivery_count > 1,
            },
        }
    except (ValueError, TypeError, LookupError) as error:
        raise NotAMessageError(f"its header `{KOMBU}` is broken: {error!r:.100}") from error


def _at_its_time(headers: dict[str, Any], now_ms: int) -> dict[str, Any]:
    due_ms = _eta_ms(headers.get("eta"))
    return headers if due_ms is None or due_ms > now_ms else {**headers, "eta": None, "due": headers["eta"]}


def _eta_ms(eta: object) -> int | None:
    """Milliseconds since 1970. None without an ETA, and for one that the worker has to read by its own time zone."""
    if not isinstance(eta, str):
        return None
    try:
        time = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return None if time.tzinfo is None else int(time.timestamp() * 1_000)
