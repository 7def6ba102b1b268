"""Which partitions a read covers, their heads as one look shows them, and the offsets that its options mean there."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.list_offsets import list_offsets, listed
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.topic import Topic
from penstock_spark.options import EARLIEST, LATEST, Bound, ByPartition, ReadOptions, Subscription
from penstock_spark.planning import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A partition with its head."""

    topic: str
    key: PartitionKey
    head: Head


def take_snapshot(broker: Broker, subscription: Subscription) -> list[Seen]:
    """All partitions of the subscription, by topic and number, each with its head, read consistently.

    One read for each topic (a scan of them for a pattern) and one for 100 heads. Raises UNKNOWN_TOPIC and
    UNKNOWN_PARTITION for what is named and does not exist; a pattern may match nothing.
    """
    found = [
        (topic, PartitionKey(topic.topic_id, number))
        for topic, numbers in _partitions(broker, subscription)
        for number in numbers
    ]
    heads = broker.log.heads([key for _, key in found])
    for topic, key in found:
        if key not in heads:
            raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic.name!r} is being deleted: try again")
    return [Seen(topic=topic.name, key=key, head=heads[key]) for topic, key in found]


def choose_offsets(broker: Broker, options: ReadOptions) -> list[OffsetRange]:
    """The ranges that a batch read's options mean now. Times cost what `list_offsets` costs, for each partition."""
    seen = take_snapshot(broker, options.subscription)
    starts = starting_offsets(broker, options, seen)
    ends = _resolve(broker, options.end, seen, "endingOffsets", lambda each: each.head.high_watermark)
    return [
        OffsetRange(topic=each.topic, key=each.key, head=each.head, start_offset=start, end_offset=end)
        for each, start, end in zip(seen, starts, ends, strict=True)
    ]


def starting_offsets(broker: Broker, options: ReadOptions, seen: Sequence[Seen]) -> list[int]:
    """Where the options say that each partition begins."""

    def without_match(each: Seen) -> int:
        if options.is_latest_without_match:
            return each.head.high_watermark
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"partition {each.key.partition} of topic {each.topic!r} has no record at or after the time to start from: "
            "choose an earlier one, or set startingOffsetsByTimestampStrategy=latest to begin at its end",
        )

    return _resolve(broker, options.start, seen, "startingOffsets", without_match)


def _resolve(
    broker: Broker, bound: Bound, seen: Sequence[Seen], name: str, without_match: Callable[[Seen], int]
) -> list[int]:
    if bound.everywhere is not None:
        return [_end(each, bound.everywhere) for each in seen]
    if bound.offsets is not None:
        return [_end(each, offset) for each, offset in zip(seen, _given(bound.offsets, seen, name), strict=True)]
    if bound.timestamps_ms is not None:
        times = _given(bound.timestamps_ms, seen, f"{name}ByTimestamp")
    else:
        times = [bound.timestamp_ms or 0] * len(seen)
    found = broker.parallel.map(lambda pair: _first_at(broker, *pair), list(zip(seen, times, strict=True)))
    offsets: list[int] = []
    for each, result in zip(seen, found, strict=True):
        if isinstance(result, PenstockError):
            raise result
        # What was appended since the snapshot is no part of it.
        is_inside = result is not None and result < each.head.high_watermark
        offsets.append(result if is_inside and result is not None else without_match(each))
    return offsets


def _first_at(broker: Broker, each: Seen, timestamp_ms: int) -> int | None:
    return listed(list_offsets(broker, each.topic, timestamp_ms, each.key.partition))[0].offset


def _end(each: Seen, offset: int) -> int:
    ends = {EARLIEST: each.head.log_start_offset, LATEST: each.head.high_watermark}
    return ends.get(offset, offset)


def _given(given: ByPartition, seen: Sequence[Seen], name: str) -> list[int]:
    """The number of each partition. Raises INVALID_REQUEST unless exactly the partitions read are named."""
    wanted = {(each.topic, each.key.partition) for each in seen}
    named = {(topic, number) for topic, numbers in given.items() for number in numbers}
    if wanted != named:
        missing, others = sorted(wanted - named), sorted(named - wanted)
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{name} must name every partition that is read and no other; missing: {missing or 'none'}, "
            f"not read: {others or 'none'}",
        )
    return [given[each.topic][each.key.partition] for each in seen]


def _partitions(broker: Broker, subscription: Subscription) -> list[tuple[Topic, Sequence[Partition]]]:
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        return [(topic, topic.all_partitions()) for topic in broker.topics.list() if pattern.fullmatch(topic.name)]
    if subscription.assigned:
        return [_assigned(broker, name, numbers) for name, numbers in sorted(subscription.assigned.items())]
    topics: Mapping[str, Topic] = {name: broker.directory.look_up(name) for name in sorted(subscription.topics)}
    return [(topic, topic.all_partitions()) for topic in topics.values()]


def _assigned(broker: Broker, name: str, numbers: Sequence[int]) -> tuple[Topic, Sequence[Partition]]:
    topic = broker.directory.look_up(name)
    for number in numbers:
        broker.directory.find_partition(name, number)
    return topic, [Partition(number) for number in sorted(numbers)]
