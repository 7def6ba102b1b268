"""/v1/share-groups/{group} for consumers: acquire records, in JSON or in binary, and acknowledge them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import aiokafka.record.default_records  # noqa: F401 - while the function starts, not in its first request

from penstock_core.acls.rule import Kind, Operation
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import FRAME_HEADER_BYTES_MAX, JSON_RECORD_BYTES_MAX
from penstock_core.records import frame
from penstock_core.records.codec import Record
from penstock_core.share.acknowledge import AckResult
from penstock_core.text import escaped_json
from penstock_handlers.edge.access.request_access import access_of, principal_of
from penstock_handlers.edge.entry import entry_point
from penstock_handlers.edge.http import (
    TOLD,
    Event,
    Result,
    batches_result,
    bytes_in_envelope,
    json_object_of,
    json_result,
)
from penstock_handlers.edge.json_records import header_json, named
from penstock_handlers.edge.share_requests import parse_acknowledge, parse_acquire
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import AckOutcome, acknowledge
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire_within_quotas
from penstock_service.share.acquire.decode_acquired import DecodedLock, decode_acquired
from penstock_service.share.acquire.hand_over import HandedLock

_FIELDS_BYTES_MAX = 700  # of a record's names, numbers and lock id, and the topic's name
_LOST = "another consumer has these records by now, or the lock never had them: nothing was changed"


def serve(event: Event, instance: Instance) -> Result:
    """Acquire records of a share group, or acknowledge them. An acquire may wait for records."""
    return _BY_ROUTE[event["routeKey"]](event, instance)


def _records(event: Event, instance: Instance) -> Result:
    fields = json_object_of(event)
    acquired, decoded = decode_acquired(instance, _acquired(event, instance, fields), _size_of)
    records = [_record(each, record, acquired.now_ms) for each in decoded for record in each.records]
    body = _to_json({**_answer(acquired), "records": records})
    return {**json_result({}), "body": body, TOLD: _told(fields)}


def _acquire(event: Event, instance: Instance) -> Result:
    fields = json_object_of(event)
    acquired = _acquired(event, instance, fields)
    locks = [lock for each in acquired.partitions for lock in each.locks]
    header = {**_answer(acquired), "partitions": [_lock(lock, acquired.now_ms) for lock in locks]}
    try:
        data = frame.encode(header, [batch.data for lock in locks for batch in lock.batches])
    except PenstockError as error:
        raise PenstockError(
            ErrorCode.RESPONSE_TOO_LARGE,
            "the results of the acknowledgements do not fit beside the records: send fewer ranges with an acquire, or "
            "acknowledge them by themselves",
            maybe_applied=True,
            limit=FRAME_HEADER_BYTES_MAX,
        ) from error
    return {**batches_result(data), TOLD: _told(fields)}


def _acquired(event: Event, instance: Instance, fields: Mapping[str, Any]) -> Acquired:
    """Acquires as much of the request as rights and quotas leave."""
    wish = _acquire_wish(event, instance, fields)
    return acquire_within_quotas(instance, principal_of(event, instance).name, _group(event), wish)


def _acknowledge(event: Event, instance: Instance) -> Result:
    entries = parse_acknowledge(json_object_of(event))
    access_of(event, instance).require(Operation.READ, Kind.TOPIC, *(each.topic for each in entries))
    outcomes = acknowledge(instance, _group(event), entries)
    return json_result({"acknowledged": [*map(_acknowledged, outcomes)]})


def _acquire_wish(event: Event, instance: Instance, fields: Mapping[str, Any]) -> AcquireWish:
    """The wish for records of topics that the caller may read: without `topics`, those of all of the group's."""
    wish, access = parse_acquire(fields), access_of(event, instance)
    access.require(Operation.READ, Kind.TOPIC, *(each.topic for each in wish.acknowledgements))
    if wish.topics is not None:
        access.require(Operation.READ, Kind.TOPIC, *sorted(wish.topics))
        return wish
    topics = instance.share_group_cache.get(_group(event)).topics
    readable = access.readable(topics)
    if topics and not readable:
        access.require(Operation.READ, Kind.TOPIC, *sorted(topics))
    # Also where these are all topics: the group may get another one before it is looked up again.
    return replace(wish, may_take=frozenset(readable))


def _group(event: Event) -> str:
    name: str = event["pathParameters"]["group"]
    return name


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the request's log line about the consumer."""
    return {"consumer_id": fields["consumer_id"]} if "consumer_id" in fields else {}


def _answer(acquired: Acquired) -> dict[str, Any]:
    """What both forms of the answer have."""
    return {
        "share_group_id": acquired.share_group_id,
        "lock_ms": acquired.lock_ms,
        "ordering": acquired.group.config.ordering,
        "acknowledged": [*map(_acknowledged, acquired.acknowledged)],
        "next_available_ms": acquired.next_available_ms,
        **({} if acquired.again_ms is None else {"retry_after_ms": acquired.again_ms}),
        **({} if acquired.group.config.work_ms is None else {"work_ms": acquired.group.config.work_ms}),
        "watch": [
            {"topic_id": each.key.topic_id, "partition": each.key.partition, "armed": each.is_armed}
            for each in acquired.watched
        ],
    }


def _lock(lock: HandedLock, now_ms: int) -> dict[str, Any]:
    return {
        "topic": lock.partition.topic,
        "topic_id": lock.partition.key.topic_id,
        "partition": lock.partition.key.partition,
        "lock_id": lock.client_lock_id,
        "delivery_count": lock.grant.lock.deliveries,
        "ranges": lock.ranges,
        "until_ms_left": _left_ms(lock, now_ms),
        "length": lock.length,
    }


def _record(decoded: DecodedLock, record: Record, now_ms: int) -> dict[str, Any]:
    lock = decoded.lock
    return {
        "topic": lock.partition.topic,
        "partition": lock.partition.key.partition,
        "offset": record.offset,
        "lock_id": lock.client_lock_id,
        "delivery_count": lock.grant.lock.deliveries,
        "until_ms_left": _left_ms(lock, now_ms),
        "timestamp_ms": record.timestamp,
        **_content(record),
    }


def _acknowledged(outcome: AckOutcome) -> dict[str, Any]:
    entry = outcome.entry
    return {
        "topic": entry.topic,
        "partition": entry.partition,
        "lock_id": entry.client_lock_id,
        "offsets": outcome.ranges,
        "result": outcome.result.value,
        **({} if outcome.next_lock_id is None else {"next_lock_id": outcome.next_lock_id}),
        **({"message": _LOST} if outcome.result is AckResult.LOST else {}),
    }


def _left_ms(lock: HandedLock, now_ms: int) -> int:
    return max(0, lock.grant.lock.until_ms - now_ms)


def _content(record: Record) -> dict[str, Any]:
    headers: Sequence[Any] = [header_json(name, value) for name, value in record.headers]
    return {**named("key", record.key), **named("value", record.value), "headers": headers}


def _size_of(record: Record) -> int:
    """The bytes of the record in the answer, about."""
    least = len(record.key or b"") + len(record.value or b"") + len(record.headers) * len('["",""],')
    if least > JSON_RECORD_BYTES_MAX:
        return least
    return _FIELDS_BYTES_MAX + bytes_in_envelope(_to_json(_content(record)))


def _to_json(content: Any) -> str:
    """As JSON, with text as it is, but for what a terminal obeys. In ASCII it would be far longer."""
    return escaped_json(json.dumps(content, separators=(",", ":"), ensure_ascii=False))


_BY_ROUTE: Mapping[str, Callable[[Event, Instance], Result]] = {
    "POST /v1/share-groups/{group}/records": _records,
    "POST /v1/share-groups/{group}/acquire": _acquire,
    "POST /v1/share-groups/{group}/acknowledge": _acknowledge,
}

handler = entry_point(serve)
