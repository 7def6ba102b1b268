"""The trace of one record: where it lies, and what each consumer of its topic did with it.

The lists come first, one request per page. Then each group, share group and subscription costs one request, up to a
bound that the caller gives. A kind that the caller may not list, and a consumer that it may not describe, is left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.api import calls, group_admin_calls, share_group_calls, subscription_calls
from penstock.arguments import check_whole
from penstock.errors import (
    AccessDeniedError,
    CorruptError,
    ErrorCode,
    InvalidError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model.fields import value_of

CONSUMERS_MAX = 500
_HIDDEN = (AccessDeniedError, NotFoundError)  # NotFoundError: the API for tokens has no subscriptions
_UNREADABLE = (AccessDeniedError, CorruptError, InvalidError)  # it cannot be decoded, or is too large for JSON
_Listed = TypeVar("_Listed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPlace:
    """The append of `[start_offset, end_offset)`, when it was, and where its bytes lie.

    `kind` is zonal, archive, inline or expiring. `zones` had the object when the append was committed.
    """

    start_offset: int
    end_offset: int
    appended_ms: int
    kind: str
    segment: str
    position: int
    length: int
    zones: tuple[str, ...]
    producer_id: int | None
    producer_epoch: int | None
    first_sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedByGroup:
    """A group that has committed an offset in the partition. It has passed the record if the offset lies above it."""

    group: str
    has_passed: bool
    offset: int
    lag: int
    committed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedByShareGroup:
    """The record in a share group: its `state` is finished, locked, available or waiting.

    A state `gone` says that retention has passed the record since the trace began.
    `until_ms` ends its lock or its wait. `is_dead`: it waits for its move to the dead-letter topic. `deliveries` is
    None for a record that is finished or gone.
    """

    group: str
    state: str
    deliveries: int | None
    consumer: str | None
    until_ms: int | None
    is_dead: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedBySubscription:
    """A subscription of the topic. It has passed the record if its target answered for it, or it was dead-lettered."""

    subscription: str
    state: str
    has_passed: bool
    offset: int
    lag: int
    last_result: str
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTrace:
    """One record. `record` is as the HTTP API has it, None if compaction removed it, or if `unread` says why.

    `dead_letter_topics` are those of the topic's share groups and subscriptions. `left_out` counts the consumers above
    the bound.
    """

    topic: str
    partition: int
    offset: int
    place: TracedPlace
    record: Mapping[str, Any] | None
    unread: str | None
    groups: tuple[TracedByGroup, ...]
    share_groups: tuple[TracedByShareGroup, ...]
    subscriptions: tuple[TracedBySubscription, ...]
    dead_letter_topics: tuple[str, ...]
    left_out: int


def trace_record(topic: str, partition: int, offset: int, *, consumers_max: int) -> Calls[RecordTrace]:
    """The trace of the record at an offset. It asks for so many consumers at most.

    Raises UnknownTopicError, UnknownPartitionError, OffsetOutOfRangeError, and InvalidError for a stage of an earlier
    release, which cannot tell.
    """
    check_whole("partition", partition, 0)
    check_whole("offset", offset, 0)
    path = calls.topic_path(topic)
    query = {"partition": str(partition), "offset": str(offset)}
    [found] = (yield json_request("GET", f"{path}/offsets", query))["offsets"]
    place = value_of(TracedPlace, _told(found, "place"))
    record, unread = yield from _record(path, partition, offset)
    end = (yield from calls.list_offsets(topic, "latest", partition))[partition]
    names = yield from _visible(group_admin_calls.list_groups)
    share = [each for each in (yield from _visible(share_group_calls.list_share_groups)) if topic in each.topics]
    pushes = [each for each in (yield from _visible(subscription_calls.list_subscriptions)) if topic in each.topics]
    room = _Room(consumers_max)
    # Share groups and subscriptions name their topics. Only a request tells which of the groups read it.
    share_groups = yield from _each(
        room, (each.group for each in share), lambda name: _by_share_group(name, topic, partition, offset)
    )
    subscriptions = yield from _each(
        room, (each.name for each in pushes), lambda name: _by_subscription(name, topic, partition, offset)
    )
    groups = yield from _each(
        room,
        (each.group for each in names),
        lambda name: _by_group(name, topic, partition, offset, 0 if end is None else end.offset),
    )
    letters = {each.config.get("dead_letter_topic") for each in share}
    letters |= {each.config.get("dead_letter_topic") for each in pushes}
    return RecordTrace(
        topic=topic,
        partition=partition,
        offset=offset,
        place=place,
        record=record,
        unread=unread,
        groups=groups,
        share_groups=share_groups,
        subscriptions=subscriptions,
        dead_letter_topics=tuple(sorted(each for each in letters if each)),
        left_out=room.left_out,
    )


class _Room:
    """The requests that are left for consumers, and the consumers that it had none for."""

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self.left_out = 0


def _each(room: _Room, names: Iterable[str], ask: Callable[[str], Calls[_Listed | None]]) -> Calls[tuple[_Listed, ...]]:
    found = []
    for name in names:
        if not room.requests:
            room.left_out += 1
            continue
        room.requests -= 1
        try:
            told = yield from ask(name)
        except _HIDDEN:  # or it was deleted since
            continue
        if told is not None:
            found.append(told)
    return tuple(found)


def _visible(listed: Callable[[], Calls[Sequence[_Listed]]]) -> Calls[Sequence[_Listed]]:
    try:
        return (yield from listed())
    except _HIDDEN:
        return ()


def _told(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What the answer tells of one record. A stage of an earlier release does not see that it is asked for one."""
    if name not in answer:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST,
            f"the stage's answer has no {name!r}: its release is older than this client's and cannot tell about one "
            "record; upgrade the stage",
        )
    told: Mapping[str, Any] = answer[name]
    return told


def _record(path: str, partition: int, offset: int) -> Calls[tuple[Mapping[str, Any] | None, str | None]]:
    query = {"offset": str(offset), "max_bytes": "1"}
    try:
        answer = yield json_request("GET", f"{path}/partitions/{partition}/records", query)
    except _UNREADABLE as error:
        return None, str(error)
    records = answer["records"]
    return (records[0], None) if records and records[0]["offset"] == offset else (None, None)


def _by_group(name: str, topic: str, partition: int, offset: int, end: int) -> Calls[TracedByGroup | None]:
    for each in (yield from calls.group_offsets(name, topic)):
        if each.partition == partition:
            return TracedByGroup(
                group=name,
                has_passed=each.offset > offset,
                offset=each.offset,
                lag=max(0, end - each.offset),
                committed_at_ms=each.committed_at_ms,
            )
    return None


def _by_share_group(name: str, topic: str, partition: int, offset: int) -> Calls[TracedByShareGroup]:
    query = {"topic": topic, "partition": str(partition), "offset": str(offset)}
    try:
        answer = yield json_request("GET", share_group_calls.share_group_path(name), query)
    except OffsetOutOfRangeError:  # retention has passed it since the trace began
        return TracedByShareGroup(
            group=name, state="gone", deliveries=None, consumer=None, until_ms=None, is_dead=False, reason=""
        )
    return value_of(TracedByShareGroup, {"group": name, **_told(answer, "record")})


def _by_subscription(name: str, topic: str, partition: int, offset: int) -> Calls[TracedBySubscription | None]:
    found = yield from subscription_calls.describe_subscription(name)
    for each in found.partitions:
        if (each.topic, each.partition) == (topic, partition):
            return TracedBySubscription(
                subscription=name,
                state=found.subscription.state,
                has_passed=each.offset > offset,
                offset=each.offset,
                lag=each.lag,
                last_result=each.last_result,
                last_error=each.last_error,
            )
    return None
