"""Which partitions a read covers, their heads as one look shows them, and the offsets that its options mean there."""

import re
from collections.abc import Callable, Sequence
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
    found, missing = find_partitions(broker, subscription)
    if missing:
        raise missing[0]
    seen = see(broker, found)
    if len(seen) < len(found):
        [(topic, _), *_] = set(found) - {(each.topic, each.key) for each in seen}
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic!r} is being deleted: try again")
    return seen


def find_partitions(
    broker: Broker, subscription: Subscription
) -> tuple[list[tuple[str, PartitionKey]], list[PenstockError]]:
    """The partitions that there are, by topic and number, and an error for each topic or partition that is named and
    does not exist."""
    if subscription.pattern is not None:
        matches = re.compile(subscription.pattern).fullmatch
        topics = [topic for topic in broker.topics.list() if matches(topic.name)]
        return [
            (each.name, PartitionKey(each.topic_id, number)) for each in topics for number in each.all_partitions()
        ], []
    found: list[tuple[str, PartitionKey]] = []
    missing: list[PenstockError] = []
    for name in sorted({*subscription.topics, *subscription.assigned}):
        try:
            topic = broker.directory.look_up(name)
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise
            missing.append(error)
            continue
        for number in sorted(subscription.assigned.get(name, topic.all_partitions())):
            if number < topic.partitions:
                found.append((name, PartitionKey(topic.topic_id, Partition(number))))
            else:
                missing.append(_unknown(topic, number))
    return found, missing


def see(broker: Broker, partitions: Sequence[tuple[str, PartitionKey]]) -> list[Seen]:
    """Those of the partitions that have a head: the others' topics are deleted."""
    heads = broker.log.heads([key for _, key in partitions])
    return [Seen(topic=topic, key=key, head=heads[key]) for topic, key in partitions if key in heads]


def covers(subscription: Subscription, topic: str, partition: Partition) -> bool:
    """Whether the partition is one of the subscription's, if there is such a topic."""
    if subscription.pattern is not None:
        return re.fullmatch(subscription.pattern, topic) is not None
    return topic in subscription.topics or partition in subscription.assigned.get(topic, ())


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


def _unknown(topic: Topic, number: int) -> PenstockError:
    return PenstockError(
        ErrorCode.UNKNOWN_PARTITION,
        f"partition {number} of topic {topic.name!r} does not exist: it has 0 to {topic.partitions - 1}",
    )
