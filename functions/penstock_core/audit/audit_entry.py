"""One entry of the audit trail: a change of a topic, group, subscription or zone by an operator.

A request notes the entry before it changes anything, and notes the result after that. Then the entry becomes a record
of the topic `_audit`: its key is `<kind>/<name>` of the resource, and its value is the JSON below.

```
{"audit_id": "…", "time_ms": 1763912345678, "principal": "arn:aws:iam::111122223333:role/ops", "address": "203.0.113.7",
 "request_id": "…", "action": "alter_topic", "resource": {"kind": "topic", "name": "orders"},
 "before": {…}, "after": {…}, "result": "done"}
```
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NewType
from urllib.parse import urlsplit

from penstock_core.limits import AUDIT_NAME_LENGTH_MAX, AUDIT_STATE_BYTES_MAX

AuditId = NewType("AuditId", str)

AUDIT_ID_BYTES = 10


class AuditResult(StrEnum):
    """The end of a change."""

    BEGUN = "begun"
    """The request has not ended yet, by what the trail knows."""
    DONE = "done"
    UNKNOWN = "unknown"
    """The request ended without an answer, or with an error after which the change may have been made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller: the name of the principal, the address that API Gateway saw, and the id of the request."""

    principal: str
    address: str
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change. `before` and `after` are JSON, None for a resource that is not there and for what is not known."""

    audit_id: AuditId
    time_ms: int
    caller: Caller
    action: str
    kind: str
    name: str
    before: Any = None
    after: Any = None
    result: AuditResult = AuditResult.BEGUN


def new_audit_id(time_ms: int, entropy: bytes) -> AuditId:
    """An id that sorts by time: 15 digits, and `AUDIT_ID_BYTES` random bytes in hexadecimal."""
    return AuditId(f"{time_ms:015}-{entropy.hex()}")


def bounded_name(name: str) -> str:
    """The name as an item can hold it, at most `AUDIT_NAME_LENGTH_MAX` characters: a refused one may be any text."""
    return name[:AUDIT_NAME_LENGTH_MAX].encode(errors="replace").decode()


def bounded_state(state: Any) -> Any:
    """The state, or its number of bytes in place of one over `AUDIT_STATE_BYTES_MAX`.

    Of an endpoint's URL it has scheme and host: the path of many webhooks is a secret.
    """
    state = _without_paths(state)
    size = len(json.dumps(state, ensure_ascii=False).encode(errors="replace"))
    return state if size <= AUDIT_STATE_BYTES_MAX else {"left_out_bytes": size}


def _without_paths(state: Any) -> Any:
    match state:
        case {"https": {"url": str(url)}}:
            parts = urlsplit(url)
            return {"https": {"url": f"{parts.scheme}://{parts.netloc}"}}
        case {**items}:
            return {name: _without_paths(value) for name, value in items.items()}
        case _:
            return state


def audit_key(entry: AuditEntry) -> bytes:
    """The key of the record: `<kind>/<name>`."""
    return f"{entry.kind}/{entry.name}".encode(errors="replace")


def audit_value(entry: AuditEntry) -> bytes:
    """The value of the record: the JSON above."""
    value = {
        "audit_id": entry.audit_id,
        "time_ms": entry.time_ms,
        "principal": entry.caller.principal,
        "address": entry.caller.address,
        "request_id": entry.caller.request_id,
        "action": entry.action,
        "resource": {"kind": entry.kind, "name": entry.name},
        "before": entry.before,
        "after": entry.after,
        "result": entry.result.value,
    }
    return json.dumps(value, separators=(",", ":")).encode()
