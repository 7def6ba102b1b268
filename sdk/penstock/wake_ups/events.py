"""The messages of AppSync Events, as text in and text out.

```
us       {"type": "connection_init"}
service  {"type": "connection_ack", "connectionTimeoutMs": 300000}
us       {"type": "subscribe", "id": "1", "channel": "/wake/<topic id>/3", "authorization": {signed headers}}
service  {"type": "subscribe_success", "id": "1"}  or  {"type": "subscribe_error", "id": "1", "errors": [...]}
service  {"type": "data", "id": "1", "event": "<JSON>"}
service  {"type": "ka"}    now and then: silence for connectionTimeoutMs means that the connection is lost
us       {"type": "unsubscribe", "id": "1"}
```
A message that does not look like one of these is no message: it costs a line in the debug log, and nothing else.
Source: https://docs.aws.amazon.com/appsync/latest/eventapi/event-api-websocket-protocol.html
"""

import base64
import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.local_files import is_loopback
from penstock_core.limits import OFFSET_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.text import parse_json

_log = logging.getLogger("penstock.wake_ups")

SUBPROTOCOL = "aws-appsync-event-ws"
CONNECT_BODY = "{}"  # what the signature of a connection covers
INIT = '{"type":"connection_init"}'

_TIMEOUT_MS_MIN, _TIMEOUT_MS_MAX = 1_000, 900_000
_TIMEOUT_MS_DEFAULT = 300_000
_WAKE_UPS_MAX = TOPIC_PARTITIONS_MAX  # in one message


class Endpoint(NamedTuple):
    """Where wake-ups come from. `host` is signed for, `realtime_host` is the Host header of the WebSocket."""

    url: str
    host: str
    realtime_host: str
    namespace: str


class Acknowledged(NamedTuple):
    """The connection is good. Silence for `timeout_ms` means that it is lost."""

    timeout_ms: int


class Subscribed(NamedTuple):
    """From now on the messages of this subscription come."""

    subscription_id: str


class Refused(NamedTuple):
    """The subscription, or the whole connection if `subscription_id` is None, was refused."""

    subscription_id: str | None
    reason: str


class WakeUp(NamedTuple):
    """A partition may have records below `next_offset`; None if the service does not say how far."""

    topic_id: str
    partition: int
    next_offset: int | None


Event = Acknowledged | Subscribed | Refused | WakeUp


def parse_endpoint(document: Mapping[str, Any]) -> Endpoint | None:
    """The answer of `GET /v1/wake-ups`. None if the stage has no wake-ups. Raises ValueError if it makes no sense."""
    url = document.get("realtime")
    if url is None:
        return None
    fields = [url, *(document.get(name) for name in ("host", "realtime_host", "namespace"))]
    if not all(isinstance(each, str) and each and each.isascii() and each.isprintable() for each in fields):
        raise ValueError(f"wake-ups are offered at {document!r:.200}")
    if urlsplit(url).scheme != "wss" and not (urlsplit(url).scheme == "ws" and is_loopback(url)):
        raise ValueError(f"wake-ups are offered at {url!r:.100}: only wss:// is safe away from this machine")
    return Endpoint(*fields)


def subprotocols(headers: Mapping[str, str]) -> list[str]:
    """The WebSocket subprotocols of a connection: the signed headers, and the protocol itself."""
    encoded = base64.urlsafe_b64encode(json.dumps(dict(headers)).encode()).decode().rstrip("=")
    return [f"header-{encoded}", SUBPROTOCOL]


def subscribe_body(channel: str) -> str:
    """What the signature of a subscription covers."""
    return json.dumps({"channel": channel}, separators=(",", ":"))


def subscribe(subscription_id: str, channel: str, headers: Mapping[str, str]) -> str:
    """The message that subscribes to a channel."""
    message = {"type": "subscribe", "id": subscription_id, "channel": channel, "authorization": dict(headers)}
    return json.dumps(message, separators=(",", ":"))


def unsubscribe(subscription_id: str) -> str:
    """The message that ends a subscription."""
    return json.dumps({"type": "unsubscribe", "id": subscription_id}, separators=(",", ":"))


def parse(text: str) -> list[Event]:
    """The events of a message; none for a message that means nothing to us."""
    message = _object(text)
    kind, subscription_id = message.get("type"), message.get("id")
    if kind == "connection_ack":
        timeout_ms = message.get("connectionTimeoutMs")
        timeout_ms = timeout_ms if type(timeout_ms) is int else _TIMEOUT_MS_DEFAULT
        return [Acknowledged(min(max(timeout_ms, _TIMEOUT_MS_MIN), _TIMEOUT_MS_MAX))]
    if kind == "subscribe_success" and isinstance(subscription_id, str):
        return [Subscribed(subscription_id)]
    if kind == "subscribe_error" and isinstance(subscription_id, str):
        return [Refused(subscription_id, _reason(message))]
    if kind in ("connection_error", "error"):
        return [Refused(None, _reason(message))]
    if kind == "data":
        events = message.get("event")
        return [wake_up for each in (events if isinstance(events, list) else [events]) for wake_up in _wake_ups(each)]
    if kind not in ("ka", "unsubscribe_success"):
        _log.debug("a message that is none of AppSync's: %.200r", text)
    return []


def _wake_ups(text: object) -> list[WakeUp]:
    event = _object(text)
    topic_id, partitions = event.get("topic_id"), event.get("partitions")
    if not isinstance(partitions, dict):
        partitions = {str(event.get("partition")): event.get("next_offset")}
    numbered = {
        int(number): next_offset
        for number, next_offset in list(partitions.items())[:_WAKE_UPS_MAX]
        if number.isascii() and number.isdecimal() and len(number) <= len(str(TOPIC_PARTITIONS_MAX))
    }
    if not isinstance(topic_id, str) or not all(map(_is_offset, numbered.values())):
        _log.debug("an event that is no wake-up: %.200r", text)
        return []
    return [WakeUp(topic_id, number, next_offset) for number, next_offset in numbered.items()]


def _is_offset(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value <= OFFSET_MAX)


def _object(text: object) -> dict[str, Any]:
    if isinstance(text, str):
        try:
            parsed = parse_json(text)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict):
            return parsed
    _log.debug("a message that is no object: %.200r", text)
    return {}


def _reason(message: Mapping[str, Any]) -> str:
    return json.dumps(message.get("errors"))[:200]
