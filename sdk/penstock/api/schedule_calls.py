"""The calls by which operators manage schedules. Every call is one request, unless its docs say more."""

import base64
from collections.abc import Mapping
from typing import Any

from penstock.api.calls import all_pages
from penstock.arguments import check, check_mapping, checked_name, checked_topic
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model.fields import value_of
from penstock.model.schedules import Schedule
from penstock_core.ids import parse_schedule_name

_RECORD_EXAMPLE = "b'go', 'go', or {'key': 'k', 'value': 'go', 'headers': [['source', 'cron']]}"
RECORD_FIELDS = ("key", "key_base64", "value", "value_base64", "headers")


def put_schedule(
    name: str,
    cron: str | None,
    topic: str | None,
    record: Mapping[str, Any] | bytes | str | None,
    settings: Mapping[str, Any],
) -> Calls[Schedule]:
    """Create the schedule, or change what is given. `settings` are `time_zone` and `enabled`, None for what is left."""
    body: dict[str, Any] = {each: value for each, value in settings.items() if value is not None}
    if cron is not None:
        check(isinstance(cron, str), f"cron={cron!r:.100}: give a text such as '0 9 * * MON-FRI'")
        body["cron"] = cron
    if topic is not None:
        body["topic"] = checked_topic(topic)
    if record is not None:
        body["record"] = record_json(record)
    return _schedule((yield json_request("PUT", schedule_path(name), body=body, is_repeatable=True)))


def record_json(record: Mapping[str, Any] | bytes | str) -> Mapping[str, Any]:
    """The record as the API takes it: of its value alone, or of its fields. Raises InvalidError."""
    if isinstance(record, str):
        return {"value": record}
    if isinstance(record, bytes):
        try:
            return {"value": record.decode()}
        except UnicodeDecodeError:
            return {"value_base64": base64.b64encode(record).decode()}
    check_mapping("record", record, _RECORD_EXAMPLE)
    for field in record:
        check(field in RECORD_FIELDS, f"record has {field!r:.100}: known fields are {', '.join(RECORD_FIELDS)}")
    return record


def list_schedules() -> Calls[list[Schedule]]:
    """All schedules, sorted by name. One request per page."""
    return [_schedule(each) for each in (yield from all_pages("/v1/schedules", "schedules"))]


def describe_schedule(name: str) -> Calls[Schedule]:
    """The schedule, its next run and its last one."""
    return _schedule((yield json_request("GET", schedule_path(name), is_repeatable=True)))


def delete_schedule(name: str) -> Calls[None]:
    """Delete the schedule. Not repeatable: a second delete could meet a new one of the name."""
    yield json_request("DELETE", schedule_path(name))


def schedule_path(name: str) -> str:
    """`/v1/schedules/{name}`. Raises InvalidError for a bad name."""
    return f"/v1/schedules/{checked_name(parse_schedule_name, name)}"


def _schedule(answer: Mapping[str, Any]) -> Schedule:
    return value_of(Schedule, answer)
