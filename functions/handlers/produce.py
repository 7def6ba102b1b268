"""POST /v1/produce: batches for many topic-partitions in one binary frame."""

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.entry import entry_point
from handlers.fields import refuse_others, take, take_number, take_objects
from handlers.http import Event, Result, body_of, json_result
from penstock_broker.append import Appended
from penstock_broker.broker import Broker
from penstock_broker.produce import ProduceEntry, produce
from penstock_core import frame
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REQUEST_BYTES_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.quorum import parse_acks


def serve(event: Event, broker: Broker) -> Result:
    header, payload = frame.decode(body_of(event))
    refuse_others(header, "acks", "batches")
    acks = parse_acks(header.get("acks", "quorum"))
    entries = parse_entries(take_objects(header, "batches"), payload)
    results = produce(broker, entries, acks)
    return json_result({"results": [_to_json(entry, result) for entry, result in zip(entries, results, strict=True)]})


def parse_entries(batches: Sequence[Mapping[str, Any]], payload: memoryview) -> list[ProduceEntry]:
    """The entries that a frame's header counts, with their part of what follows it. Raises INVALID_REQUEST."""
    entries: list[ProduceEntry] = []
    position = 0
    for fields in batches:
        refuse_others(fields, "topic", "partition", "length")
        end = position + take_number(fields, "length", 0, REQUEST_BYTES_MAX)
        entries.append(
            ProduceEntry(
                topic=take(fields, "topic", str),
                partition=take_number(fields, "partition", 0, TOPIC_PARTITIONS_MAX - 1),
                data=payload[position:end],
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


def _to_json(entry: ProduceEntry, result: Appended | PenstockError) -> dict[str, Any]:
    named = {"topic": entry.topic, "partition": entry.partition}
    if isinstance(result, PenstockError):
        return {**named, "error": result.to_json()}
    return {**named, "base_offset": result.base_offset, "next_offset": result.next_offset}


handler = entry_point(serve)
