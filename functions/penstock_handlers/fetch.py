"""The function `fetch`: batches of many topic-partitions in one binary frame, or records of a partition in JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock_core import limits
from penstock_core.acls.rule import Operation
from penstock_core.errors import PenstockError
from penstock_core.outcomes import Outcome, Outcomes
from penstock_core.records import frame
from penstock_handlers.edge.access.request_access import access_of, where_allowed
from penstock_handlers.edge.entry import entry_point
from penstock_handlers.edge.fields import refuse_unknown, take, take_flag, take_number, take_objects
from penstock_handlers.edge.http import Event, Result, batches_result, json_object_of
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import allow_fetch
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch

if TYPE_CHECKING:
    from penstock_core.filters.filter import Filter

_BINARY = "POST /v1/fetch"


def serve(event: Event, instance: Instance) -> Result:
    """Answer a fetch with batches in one frame, or with records in JSON. May wait for records.

    The modules of JSON take longer to load than all others, so the first request in JSON loads them.
    """
    if event["routeKey"] == _BINARY:
        return _fetch_frame(event, instance)
    from penstock_handlers.routes import records_fetch

    return records_fetch.serve(event, instance)


def _fetch_frame(event: Event, instance: Instance) -> Result:
    """One frame: the result of each partition, then the batches of all."""
    fields = json_object_of(event)
    refuse_unknown(fields, "partitions", "max_bytes", "min_bytes", "wait_ms", "arm", "filter")
    must_arm = take_flag(fields, "arm")
    max_bytes = take_number(fields, "max_bytes", 1, limits.FETCH_BYTES_MAX, limits.FETCH_BYTES_DEFAULT_MAX)
    wanted = _filter(fields)
    entries = [_entry(partition, max_bytes, wanted) for partition in take_objects(fields, "partitions")]
    min_bytes = take_number(fields, "min_bytes", 0, limits.FETCH_BYTES_MAX, 1)
    wait_ms = take_number(fields, "wait_ms", 0, limits.FETCH_WAIT_MS_MAX, 0)
    access = access_of(event, instance)

    def fetch_allowed(allowed: Sequence[FetchEntry]) -> Outcomes[FetchResult]:
        """The results of the partitions whose topics have some of their quotas left, and the errors of the others."""
        allowance = allow_fetch(instance, access.principal.name, [entry.topic for entry in allowed], max_bytes)
        passed = [entry for entry in allowed if entry.topic not in allowance.refused]
        fetched = fetch(
            instance,
            passed,
            max_bytes=allowance.max_bytes,
            min_bytes=min_bytes,
            wait_ms=wait_ms if len(passed) == len(entries) else 0,  # an error of a partition ends the wait for others
            must_arm=must_arm,
        )
        allowance.settle(instance, _spent(passed, fetched))
        found = iter(fetched)
        return Outcomes([allowance.refused.get(entry.topic) or next(found) for entry in allowed])

    results = where_allowed(access, Operation.READ, entries, lambda entry: entry.topic, fetch_allowed)
    answers = [_to_json(entry, result, must_arm=must_arm) for entry, result in zip(entries, results, strict=True)]
    again_ms = [result.again_ms for result in results.ok if result.again_ms is not None]
    header = {"partitions": answers, **({"retry_after_ms": max(again_ms)} if again_ms else {})}
    return batches_result(frame.encode(header, [result.data for result in results.ok]))


def _entry(fields: Mapping[str, Any], max_bytes: int, wanted: Filter | None) -> FetchEntry:
    refuse_unknown(fields, "topic", "topic_id", "partition", "offset", "max_bytes", "filter")
    return FetchEntry(
        topic=take(fields, "topic", str),
        partition=take_number(fields, "partition", 0, limits.TOPIC_PARTITIONS_MAX - 1),
        offset=take_number(fields, "offset", 0, limits.OFFSET_MAX),
        max_bytes=take_number(fields, "max_bytes", 1, limits.FETCH_BYTES_MAX, max_bytes),
        topic_id=take(fields, "topic_id", str) if "topic_id" in fields else None,
        filter=_filter(fields) if "filter" in fields else wanted,
    )


def _spent(entries: Sequence[FetchEntry], results: Sequence[Outcome[FetchResult]]) -> dict[str, int]:
    """The bytes that quotas count, by topic."""
    sizes: Counter[str] = Counter()
    for entry, result in zip(entries, results, strict=True):
        sizes[entry.topic] += 0 if isinstance(result, PenstockError) else result.spent_bytes
    return sizes


def _filter(fields: Mapping[str, Any]) -> Filter | None:
    """The filter of a request, or of one of its partitions: an object, its JSON text, or null for none."""
    policy = fields.get("filter")
    if policy is None:
        return None
    from penstock_core.filters.policy import parse_filter  # which most readers do not need

    return parse_filter(policy)


def _to_json(entry: FetchEntry, result: Outcome[FetchResult], *, must_arm: bool) -> dict[str, Any]:
    named = {"topic": entry.topic, "partition": entry.partition}
    if isinstance(result, PenstockError):
        return {**named, "error": result.to_json()}
    return {
        **named,
        "topic_id": result.topic_id,
        "log_start_offset": result.log_start_offset,
        "high_watermark": result.high_watermark,
        "next_offset": result.next_offset,
        "length": len(result.data),
        **({"armed": result.is_armed, "topic_partitions": result.topic_partitions} if must_arm else {}),
    }


handler = entry_point(serve)
