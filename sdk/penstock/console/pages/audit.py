"""The audit trail: who changed what, the newest first."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.api import calls
from penstock.console.browsing import RecordPage, Wanted, browse
from penstock.console.page import Asked, Page, Route, Shown
from penstock.errors import NotFoundError
from penstock.http.client import Client
from penstock.model import ConsumerRecord, TopicPartition
from penstock_core.ids import AUDIT_TOPIC
from penstock_core.limits import CONSOLE_RECORDS_MAX, CONSOLE_VALUE_CHARACTERS_MAX

_PLACE = TopicPartition(AUDIT_TOPIC, 0)


def show(asked: Asked) -> Shown:
    """The newest changes, or those from an offset on: three fetches at most."""
    try:
        page = browse(asked.prompt, Wanted(place=_PLACE, offset=_start(asked)))
    except NotFoundError:
        return Shown(template="audit.html", title="Audit", facts={"changes": [], "older": None, "newer": None})
    return Shown(
        template="audit.html",
        title="Audit",
        facts={"changes": [_change(each) for each in reversed(page.records)], **_links(asked, page)},
    )


def _start(asked: Asked) -> int:
    if asked.word("offset"):
        return asked.number("offset", 0)
    end = Client(asked.prompt).call(calls.list_offsets(_PLACE.topic, "latest", _PLACE.partition))[_PLACE.partition]
    return max(0, (0 if end is None else end.offset) - CONSOLE_RECORDS_MAX)


def _links(asked: Asked, page: RecordPage) -> Mapping[str, str | None]:
    older = max(page.log_start_offset, page.start_offset - CONSOLE_RECORDS_MAX)
    return {
        "older": asked.url(offset=older) if page.start_offset > page.log_start_offset else None,
        "newer": None if page.is_at_end else asked.url(offset=page.next_offset),
    }


def _change(record: ConsumerRecord) -> Mapping[str, Any]:
    """The change as the page shows it. The service writes these records, but text of others is in them."""
    try:
        found = json.loads(record.value or b"{}")
    except (ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict):
        found = {}
    resource = found.get("resource")
    named = resource if isinstance(resource, dict) else {}
    time_ms = found.get("time_ms")
    return {
        "offset": record.offset,
        "time_ms": time_ms if isinstance(time_ms, int) else record.timestamp_ms,
        **{name: str(found.get(name) or "–")[:400] for name in ("principal", "address", "action", "result")},
        "kind": str(named.get("kind", "")),
        "name": str(named.get("name", ""))[:400],
        "before": _pretty(found.get("before")),
        "after": _pretty(found.get("after")),
    }


def _pretty(state: object) -> str | None:
    if state is None:
        return None
    return json.dumps(state, indent=2, ensure_ascii=False)[: CONSOLE_VALUE_CHARACTERS_MAX // CONSOLE_RECORDS_MAX]


PAGE = Page(menu="Audit", path="/audit", routes=(Route(method="GET", path="/audit", answer=show),))
