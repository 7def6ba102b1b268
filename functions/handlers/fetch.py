"""POST /v1/fetch: batches of many topic-partitions in one binary frame."""

from collections.abc import Mapping
from typing import Any

from handlers.entry import entry_point
from handlers.fields import refuse_others, take, take_number, take_objects
from handlers.http import Event, Result, batches_result, parse_json, text_of
from penstock_broker.broker import Broker
from penstock_broker.fetch import Fetched, FetchEntry, fetch
from penstock_core import frame, limits
from penstock_core.errors import ErrorCode, PenstockError


def serve(event: Event, broker: Broker) -> Result:
    fields = _parse(event)
    refuse_others(fields, "partitions", "max_bytes", "min_bytes", "wait_ms")
    max_bytes = take_number(fields, "max_bytes", 1, limits.FETCH_BYTES_MAX, limits.FETCH_BYTES_DEFAULT_MAX)
    entries = [_entry(partition, max_bytes) for partition in take_objects(fields, "partitions")]
    results = fetch(
        broker,
        entries,
        max_bytes=max_bytes,
        min_bytes=take_number(fields, "min_bytes", 0, limits.FETCH_BYTES_MAX, 1),
        wait_ms=take_number(fields, "wait_ms", 0, limits.FETCH_WAIT_MS_MAX, 0),
    )
    header = {"partitions": [_to_json(entry, result) for entry, result in zip(entries, results, strict=True)]}
    return batches_result(frame.encode(header, [result.data for result in results if isinstance(result, Fetched)]))


def _parse(event: Event) -> Mapping[str, Any]:
    fields = parse_json(text_of(event))
    if not isinstance(fields, dict):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body must be a JSON object, not {fields!r:.100}")
    return fields


def _entry(fields: Mapping[str, Any], max_bytes: int) -> FetchEntry:
    refuse_others(fields, "topic", "partition", "offset", "max_bytes")
    return FetchEntry(
        topic=take(fields, "topic", str),
        partition=take_number(fields, "partition", 0, limits.TOPIC_PARTITIONS_MAX - 1),
        offset=take_number(fields, "offset", 0, limits.OFFSET_MAX),
        max_bytes=take_number(fields, "max_bytes", 1, limits.FETCH_BYTES_MAX, max_bytes),
    )


def _to_json(entry: FetchEntry, result: Fetched | PenstockError) -> dict[str, Any]:
    named = {"topic": entry.topic, "partition": entry.partition}
    if isinstance(result, PenstockError):
        return {**named, "error": result.to_json()}
    return {
        **named,
        "log_start_offset": result.log_start_offset,
        "high_watermark": result.high_watermark,
        "next_offset": result.next_offset,
        "length": len(result.data),
    }


handler = entry_point(serve)
