"""The function `produce`: batches for many topic-partitions in one binary frame, or records of a topic in JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock_core.acls.rule import Operation
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REQUEST_BYTES_MAX, TIMER_MS_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.log.timer import TimerPlace, parse_timer_id, scheduled_id
from penstock_core.outcomes import Outcome
from penstock_core.records import frame
from penstock_core.records.producer_state import SERVICE_OWNER, owner_of
from penstock_core.zones.zone_state import parse_acks
from penstock_handlers.edge.access.request_access import access_of, where_allowed
from penstock_handlers.edge.entry import entry_point
from penstock_handlers.edge.fields import refuse_unknown, take, take_flag, take_number, take_objects
from penstock_handlers.edge.http import Event, Result, body_of, json_result
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_within_quotas import Produced, produce_within_quotas
from penstock_service.records.schedule import ScheduledRecords

TAG_FILTER_DIGITS = 16
_BINARY = "POST /v1/produce"


def serve(event: Event, instance: Instance) -> Result:
    """Append what a frame or a body of JSON holds, and answer the offsets or the errors.

    The modules of JSON take longer to load than all others, so the first request in JSON loads them.
    """
    if event["routeKey"] == _BINARY:
        return _append_frame(event, instance)
    from penstock_handlers.routes import records_produce

    return records_produce.serve(event, instance)


def _append_frame(event: Event, instance: Instance) -> Result:
    header, payload = frame.decode(body_of(event))
    refuse_unknown(header, "acks", "batches")
    acks = parse_acks(header.get("acks", "quorum"))
    access = access_of(event, instance)
    entries = parse_entries(take_objects(header, "batches"), payload, owner_of(access.principal.digest))
    results = where_allowed(
        access,
        Operation.WRITE,
        entries,
        lambda entry: entry.topic,
        lambda allowed: produce_within_quotas(instance, access.principal.name, allowed, acks),
    )
    return json_result({"results": [_to_json(entry, result) for entry, result in zip(entries, results, strict=True)]})


def parse_entries(
    batches: Sequence[Mapping[str, Any]], payload: memoryview, owner: bytes = SERVICE_OWNER
) -> list[ProduceEntry]:
    """The entries that a frame's header lists, each with its part of the payload. Raises INVALID_REQUEST.

    `owner` is that of the producer ids in them. Transactions have none: their ids belong to a transactional id.
    """
    entries: list[ProduceEntry] = []
    position = 0
    for fields in batches:
        refuse_unknown(fields, "topic", "partition", "length", "tag_filter", "may_expire", "deliver_at_ms", "timer_id")
        end = position + take_number(fields, "length", 0, REQUEST_BYTES_MAX)
        entries.append(
            ProduceEntry(
                topic=take(fields, "topic", str),
                partition=take_number(fields, "partition", 0, TOPIC_PARTITIONS_MAX - 1),
                data=payload[position:end],
                tag_filter=_tag_filter(take(fields, "tag_filter", str)) if "tag_filter" in fields else None,
                may_expire=take_flag(fields, "may_expire"),
                timer=_timer(fields),
                owner=owner,
            )
        )
        position = end
    if position != len(payload):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the lengths of all batches add up to {position} bytes, but {len(payload)} follow the header: "
            "the body is cut off or a length is wrong",
        )
    return entries


def _tag_filter(text: str) -> int:
    if len(text) != TAG_FILTER_DIGITS or set(text) - set("0123456789abcdef"):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"tag_filter={text!r:.60}: must be {TAG_FILTER_DIGITS} hexadecimal digits, in small letters",
        )
    return int(text, 16)


def _timer(fields: Mapping[str, Any]) -> TimerPlace | None:
    """The timer of delayed batches. Its client draws the id, and fixes the time, before its first try."""
    if "deliver_at_ms" not in fields and "timer_id" not in fields:
        return None
    return TimerPlace(
        take_number(fields, "deliver_at_ms", 0, TIMER_MS_MAX), parse_timer_id(take(fields, "timer_id", str))
    )


def _to_json(entry: ProduceEntry, result: Outcome[Produced]) -> dict[str, Any]:
    named = {"topic": entry.topic, "partition": entry.partition}
    if isinstance(result, PenstockError):
        return {**named, "error": result.to_json()}
    if isinstance(result, ScheduledRecords):
        return {**named, "scheduled_id": scheduled_id(result.key.partition, result.place)}
    return {**named, "base_offset": result.base_offset, "next_offset": result.next_offset}


handler = entry_point(serve)
