"""Schedules as operators see them. All values are immutable; times are milliseconds since 1970."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule, its next run and its last one. None for what there is not.

    `cron` is in the local time of `time_zone`. `record` is as the HTTP API has it: `key` and `value`, or `key_base64`
    and `value_base64` for bytes that are no text, and `headers`. `next_ms` is None for a schedule that is not enabled.
    `runs` counts the records; the last one was due at `last_due_ms`, and appended at `last_run_ms`. `last_error` tells
    why the last run failed at `last_error_ms`; it is None after one that succeeded. `schedule_id` is another one when a
    schedule is made anew.
    """

    name: str
    schedule_id: str
    created_at_ms: int
    cron: str
    time_zone: str
    topic: str
    topic_id: str
    record: Mapping[str, Any]
    enabled: bool
    next_ms: int | None
    runs: int
    last_due_ms: int | None
    last_run_ms: int | None
    last_error: str | None
    last_error_ms: int | None

    @property
    def content(self) -> "RecordContent":
        """Key, value and headers of the record, as consumers get them. A run adds two headers of its own."""
        return content_of(self.record)


class RecordContent(NamedTuple):
    """The bytes of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def content_of(record: Mapping[str, Any]) -> RecordContent:
    """What a record of the API stands for: text and base64 of the same bytes are the same."""
    headers = tuple((str(name), _bytes(value)) for name, value in record.get("headers", ()))
    return RecordContent(_field(record, "key"), _field(record, "value"), headers)


def _field(record: Mapping[str, Any], name: str) -> bytes | None:
    encoded = record.get(f"{name}_base64")
    return _bytes(record.get(name) if encoded is None else {"base64": encoded})


def _bytes(value: str | Mapping[str, str] | None) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return base64.b64decode(value["base64"], validate=True)
