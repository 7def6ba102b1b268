"""Mirrors: another stage pushes its log, and operators move a topic to its mirror, promote that, or begin it anew."""

from collections.abc import Callable, Mapping
from typing import Any

from penstock_core import limits
from penstock_core.acls.rule import Kind, Operation
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, parse_subscription_name
from penstock_core.limits import OFFSET_MAX, REQUEST_BYTES_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.log.topic import MirrorNote
from penstock_core.mirror.group_offsets import OffsetsTelling
from penstock_core.mirror.push import (
    LogEnd,
    MirrorPush,
    PlannedPromotion,
    PushPart,
    SourceTopic,
    answer_json,
    source_json,
)
from penstock_core.mirror.told_timers import TimersTelling, parse_places
from penstock_core.records import frame
from penstock_core.records.producer_state import OWNER_BYTES, SEQUENCE_MAX, ProducerSequence, ProducerState
from penstock_handlers.edge.access.request_access import access_of
from penstock_handlers.edge.fields import refuse_unknown, take, take_flag, take_number, take_objects
from penstock_handlers.edge.http import Event, Result, body_of, json_object_of, json_result
from penstock_handlers.edge.models.answer_models import move_answer
from penstock_service.instance.instance import Instance
from penstock_service.mirror.append_push import append_push
from penstock_service.mirror.move_topic import move_topic, reopen_topic, return_topic
from penstock_service.mirror.promote_topic import promote_topic, refuse_move, resync_topic

_TIME_MS_MAX = 2**47
_CHECKSUM_MAX = 2**32 - 1
_EPOCH_MAX = 2**15 - 1
_ID_MAX = 2**63 - 1
_SPAN_MAX = 2**31 - 1


def serve(event: Event, instance: Instance) -> Result:
    """Append a push, move or promote a topic, or remove a mirrored one."""
    return _BY_ROUTE[event["routeKey"]](event, instance)


def _append(event: Event, instance: Instance) -> Result:
    header, payload = frame.decode(body_of(event))
    push = _parse_push(str(event["pathParameters"]["name"]), header, payload)
    for operation in (Operation.ALTER, Operation.WRITE):
        access_of(event, instance).require(operation, Kind.TOPIC, push.topic.name)
    return json_result(answer_json(append_push(instance, push), Partition(push.partition)))


def _move(event: Event, instance: Instance) -> Result:
    name, fields = event["pathParameters"]["topic"], json_object_of(event)
    if "reopen" in fields:
        refuse_unknown(fields, "reopen", "mirror_lost")
        number, is_lost = take_number(fields, "reopen", 1, OFFSET_MAX), take_flag(fields, "mirror_lost")
        reopened = reopen_topic(instance, name, number, is_mirror_lost=is_lost)
        assert reopened.move is not None
        return json_result({**move_answer(reopened.move)})
    if "return" in fields:
        refuse_unknown(fields, "return", "mirror", "topic_id", "source")
        note = MirrorNote(
            name=parse_subscription_name(take(fields, "mirror", str)),
            topic_id=_text(fields, "topic_id", limits.NAME_LENGTH_MAX),
            source=_text(fields, "source", limits.PUSH_URL_LENGTH_MAX),
        )
        returned = return_topic(instance, name, take_number(fields, "return", 1, OFFSET_MAX), note)
        assert returned.move is not None
        return json_result({**move_answer(returned.move)})
    refuse_unknown(fields, "mirror", "dry_run")
    mirror = _text(fields, "mirror", limits.NAME_LENGTH_MAX)
    moved = move_topic(instance, name, mirror, is_dry_run=take_flag(fields, "dry_run"))
    partitions = [
        {
            "partition": each.partition,
            "log_id": each.log_id,
            "end_offset": each.end_offset,
            "mirrored_offset": each.mirrored_offset,
            "lag": each.lag,
            "appended_ms": each.appended_ms,
        }
        for each in moved.partitions
    ]
    told = {"source": source_json(moved.source), "partitions": partitions}
    timers = {"timers": moved.timers, "are_timers_told": moved.are_timers_told}
    return json_result({**move_answer(moved.note), **told, **timers})


def _promote(event: Event, instance: Instance) -> Result:
    name, fields = event["pathParameters"]["topic"], json_object_of(event) if body_of(event) else {}
    if "refuse" in fields:
        refuse_unknown(fields, "refuse")
        refuse_move(instance, name, take_number(fields, "refuse", 1, OFFSET_MAX))
        return json_result({"partitions": [], "is_promoted": False})
    if "dry_run" in fields:
        refuse_unknown(fields, "dry_run")
        promoted = promote_topic(instance, name, is_dry_run=take_flag(fields, "dry_run"))
    else:
        promoted = promote_topic(instance, name, _parse_planned(fields) if fields else None)
    partitions = [
        {"partition": each.partition, "promoted_at": each.promoted_at, "appended_ms": each.appended_ms}
        for each in promoted.partitions
    ]
    offsets, access = promoted.offsets, access_of(event, instance)
    return json_result(
        {
            "partitions": partitions,
            "is_promoted": promoted.is_whole,
            "groups": [
                {
                    "group": group,
                    "offsets": [
                        {"partition": number, "offset": each.offset, "metadata": each.metadata}
                        for number, each in of_group.items()
                    ],
                }
                for group, of_group in offsets.groups.items()
                if access.may(Operation.DESCRIBE, Kind.GROUP, group)
            ],
            "share_groups": [
                {
                    "group": group,
                    "offsets": [{"partition": number, "offset": each.offset} for number, each in of_group.items()],
                }
                for group, of_group in offsets.share_groups.items()
                if access.may(Operation.DESCRIBE, Kind.SHARE_GROUP, group)
            ],
            "groups_read_ms": offsets.read_ms or None,
            "groups_left_out": offsets.left_out,
        }
    )


def _parse_planned(fields: Mapping[str, Any]) -> PlannedPromotion:
    refuse_unknown(fields, "move", "mirror", "topic_id", "source", "partitions")
    source, ends = _parse_topic(take(fields, "source", dict)), dict(map(_parse_end, take_objects(fields, "partitions")))
    if ends.keys() != {*range(source.partitions)}:  # a head without an end would open wherever it is
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"partitions: {len(ends)} ends for a topic of {source.partitions} partitions: give one for each",
        )
    return PlannedPromotion(
        number=take_number(fields, "move", 1, OFFSET_MAX),
        mirror=parse_subscription_name(take(fields, "mirror", str)),
        topic_id=_text(fields, "topic_id", limits.NAME_LENGTH_MAX),
        source=source,
        ends=ends,
    )


def _parse_end(fields: Mapping[str, Any]) -> tuple[Partition, LogEnd]:
    refuse_unknown(fields, "partition", "log_id", "end_offset")
    return Partition(take_number(fields, "partition", 0, TOPIC_PARTITIONS_MAX - 1)), LogEnd(
        log_id=_text(fields, "log_id", limits.NAME_LENGTH_MAX),
        next_offset=Offset(take_number(fields, "end_offset", 0, OFFSET_MAX)),
    )


def _resync(event: Event, instance: Instance) -> Result:
    _refuse_body(event)
    return json_result({"topic_id": resync_topic(instance, event["pathParameters"]["topic"])})


def _refuse_body(event: Event) -> None:
    if body_of(event):
        raise PenstockError(ErrorCode.INVALID_REQUEST, "this route takes no body: send none")


def _parse_push(mirror: str, header: Mapping[str, Any], payload: memoryview) -> MirrorPush:
    refuse_unknown(
        header, "source", "topic", "partition", "log_id", "base_offset", "parts", "producers", "offsets", "timers"
    )
    parts = take_objects(header, "parts")
    producers = take_objects(header, "producers")
    parts_max = limits.MIRROR_TIMERS_PUT if "timers" in header else limits.MIRROR_PUSH_REFS
    if len(parts) > parts_max or len(producers) > limits.MIRROR_PUSH_PRODUCERS:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a push of {len(parts)} parts and {len(producers)} producers: {parts_max} parts and "
            f"{limits.MIRROR_PUSH_PRODUCERS} producers are the most",
        )
    offsets = None
    if "offsets" in header:
        fields = take(header, "offsets", dict)
        refuse_unknown(fields, "replaces", "read_ms", "left_out")
        if parts:
            raise PenstockError(ErrorCode.INVALID_REQUEST, "offsets and parts in one push: send two")
        offsets = OffsetsTelling(
            replaces=take_number(fields, "replaces", 0, OFFSET_MAX),
            read_ms=take_number(fields, "read_ms", 0, _TIME_MS_MAX),
            left_out=take_number(fields, "left_out", 0, OFFSET_MAX),
        )
    partition = Partition(take_number(header, "partition", 0, TOPIC_PARTITIONS_MAX - 1))
    return MirrorPush(
        mirror=parse_subscription_name(mirror),
        source=_text(header, "source", limits.PUSH_URL_LENGTH_MAX, 0),
        topic=_parse_topic(take(header, "topic", dict)),
        partition=partition,
        log_id=_text(header, "log_id", limits.NAME_LENGTH_MAX),
        base_offset=Offset(take_number(header, "base_offset", 0, OFFSET_MAX)),
        parts=[_parse_part(each, partition) for each in parts],
        producers=dict(map(_parse_producer, producers)),
        offsets=offsets,
        timers=_parse_timers(take(header, "timers", dict), partition) if "timers" in header else None,
        data=payload,
    )


def _parse_timers(fields: Mapping[str, Any], partition: Partition) -> TimersTelling:
    refuse_unknown(fields, "read_ms", "listed", "after", "until", "copied", "settled")
    after, until = (
        parse_places(partition, [fields[name]])[0] if name in fields else None for name in ("after", "until")
    )
    return TimersTelling(
        read_ms=take_number(fields, "read_ms", 0, _TIME_MS_MAX),
        listed=parse_places(partition, fields["listed"]) if "listed" in fields else None,
        after=after,
        until=until,
        copied=parse_places(partition, take(fields, "copied", list)),
        settled=parse_places(partition, take(fields, "settled", list)),
    )


def _parse_topic(fields: Mapping[str, Any]) -> SourceTopic:
    names = ("name", "topic_id", "partitions", "heads", "writable", "layout", "generations", "was_compacted", "config")
    refuse_unknown(fields, *names, "settings_ms")
    partitions = take_number(fields, "partitions", 1, TOPIC_PARTITIONS_MAX)
    starts = take(fields, "generations", list)
    is_rising = all(isinstance(each, int) for each in starts) and starts[:1] == [0] and starts == sorted({*starts})
    if not is_rising or starts[-1] >= partitions:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"generations={starts!r:.100}: must rise from 0, and lie below {partitions}"
        )
    return SourceTopic(
        name=take(fields, "name", str),
        topic_id=_text(fields, "topic_id", limits.NAME_LENGTH_MAX),
        partitions=partitions,
        heads=_optional(fields, "heads", partitions, TOPIC_PARTITIONS_MAX),
        writable=_optional(fields, "writable", 1, partitions - starts[-1]),
        layout=take_number(fields, "layout", 0, OFFSET_MAX),
        generations=tuple(starts),
        was_compacted=take_flag(fields, "was_compacted"),
        config=take(fields, "config", dict),
        settings_ms=take_number(fields, "settings_ms", 0, _TIME_MS_MAX),
    )


def _optional(fields: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    return None if fields.get(name) is None else take_number(fields, name, low, high)


def _parse_part(fields: Mapping[str, Any], partition: Partition) -> PushPart:
    numbers = ("length", "offset_span", "record_count", "max_timestamp_ms", "appended_ms")
    refuse_unknown(
        fields, *numbers, "may_expire", "tag_filter", "producer_id", "producer_epoch", "first_sequence", "timer"
    )
    span = take_number(fields, "offset_span", 1, _SPAN_MAX)
    sequence = None
    if "producer_id" in fields:
        first = take_number(fields, "first_sequence", 0, SEQUENCE_MAX)
        sequence = ProducerSequence(
            producer_id=take_number(fields, "producer_id", 0, _ID_MAX),
            epoch=take_number(fields, "producer_epoch", 0, _EPOCH_MAX),
            first_sequence=first,
            last_sequence=first + span - 1,
        )
    return PushPart(
        length=take_number(fields, "length", 1, REQUEST_BYTES_MAX),
        offset_span=span,
        record_count=take_number(fields, "record_count", 0, span),
        max_timestamp_ms=take_number(fields, "max_timestamp_ms", -1, OFFSET_MAX),
        appended_ms=take_number(fields, "appended_ms", 0, _TIME_MS_MAX),
        tag_filter=int.from_bytes(_hex(fields, "tag_filter", 8)) if "tag_filter" in fields else None,
        sequence=sequence,
        may_expire=take_flag(fields, "may_expire"),
        timer=parse_places(partition, [fields["timer"]])[0] if "timer" in fields else None,
    )


def _parse_producer(fields: Mapping[str, Any]) -> tuple[int, ProducerState]:
    refuse_unknown(fields, "id", "epoch", "last_sequence", "written_ms", "checksum", "owner")
    return take_number(fields, "id", 0, _ID_MAX), ProducerState(
        epoch=take_number(fields, "epoch", 0, _EPOCH_MAX),
        last_sequence=take_number(fields, "last_sequence", 0, SEQUENCE_MAX),
        written_ms=take_number(fields, "written_ms", 0, _TIME_MS_MAX),
        checksum=take_number(fields, "checksum", 0, _CHECKSUM_MAX),
        owner=_hex(fields, "owner", OWNER_BYTES) if fields.get("owner") else b"",
    )


def _text(fields: Mapping[str, Any], name: str, length_max: int, length_min: int = 1) -> str:
    text = take(fields, name, str)
    if not length_min <= len(text) <= length_max:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{name} of {len(text)} characters: give {length_min} to {length_max}"
        )
    return text


def _hex(fields: Mapping[str, Any], name: str, size: int) -> bytes:
    text = take(fields, name, str)
    if len(text) != 2 * size or set(text) - set("0123456789abcdef"):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{name}={text!r:.60}: must be {2 * size} hexadecimal digits, in small letters"
        )
    return bytes.fromhex(text)


_BY_ROUTE: Mapping[str, Callable[[Event, Instance], Result]] = {
    "POST /v1/mirrors/{name}/append": _append,
    "POST /v1/topics/{topic}/move": _move,
    "POST /v1/topics/{topic}/promote": _promote,
    "POST /v1/topics/{topic}/resync": _resync,
}
