"""The snapshot of a read: its partitions, their heads, and the offsets that the read's options mean on these heads."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance
from penstock_service.topics.list_offsets import list_offsets
from penstock_spark.plan.options import EARLIEST, LATEST, Bound, ByPartition, ReadOptions, Subscription
from penstock_spark.plan.planning import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """A partition with its head."""

    topic: str
    key: PartitionKey
    head: Head


def take_snapshot(instance: Instance, subscription: Subscription) -> list[PartitionSnapshot]:
    """All partitions of the subscription, by topic and number, each with its head, read consistently.

    Costs one read for each topic (a scan of the topics for a pattern) and one for each 100 heads. Raises UNKNOWN_TOPIC
    and UNKNOWN_PARTITION if a named topic or partition does not exist. A pattern may match no topic.
    """
    found, missing = find_partitions(instance, subscription)
    if missing:
        raise missing[0]
    snapshots = snapshot_partitions(instance, found)
    if len(snapshots) < len(found):
        [(topic, _), *_] = set(found) - {(each.topic, each.key) for each in snapshots}
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic!r} is being deleted: try again")
    return snapshots


def find_partitions(
    instance: Instance, subscription: Subscription
) -> tuple[list[tuple[str, PartitionKey]], list[PenstockError]]:
    """The partitions that exist, by topic and number, and an error for each missing one.

    Drained partitions that went are among them, with empty heads: a stream may have read them, and they may come back.
    Only a topic or partition that the subscription names can be missing.
    """
    if subscription.pattern is not None:
        matches = re.compile(subscription.pattern).fullmatch
        topics = [topic for topic in instance.stores.topics.list() if matches(topic.name)]
        return [(each.name, PartitionKey(each.topic_id, number)) for each in topics for number in each.all_heads()], []
    found: list[tuple[str, PartitionKey]] = []
    missing: list[PenstockError] = []
    for name in sorted({*subscription.topics, *subscription.assigned}):
        try:
            topic = instance.topic_cache.read_through(name)
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise
            missing.append(error)
            continue
        for number in sorted(subscription.assigned.get(name, topic.all_heads())):
            if number < topic.head_count:
                found.append((name, PartitionKey(topic.topic_id, Partition(number))))
            else:
                missing.append(_unknown(topic, number))
    return found, missing


def snapshot_partitions(instance: Instance, partitions: Sequence[tuple[str, PartitionKey]]) -> list[PartitionSnapshot]:
    """Read the heads of these partitions. The result leaves out partitions without a head: their topics are deleted."""
    heads = instance.stores.log.heads([key for _, key in partitions])
    return [PartitionSnapshot(topic=topic, key=key, head=heads[key]) for topic, key in partitions if key in heads]


def covers(subscription: Subscription, topic: str, partition: Partition) -> bool:
    """The subscription includes this partition, whether or not its topic exists."""
    if subscription.pattern is not None:
        return re.fullmatch(subscription.pattern, topic) is not None
    return topic in subscription.topics or partition in subscription.assigned.get(topic, ())


def choose_offsets(instance: Instance, options: ReadOptions) -> list[OffsetRange]:
    """The ranges that a batch read's options mean now. Times cost one `list_offsets` for each partition."""
    snapshots = take_snapshot(instance, options.subscription)
    starts = starting_offsets(instance, options, snapshots)
    ends = _resolve(instance, options.end, snapshots, "endingOffsets", lambda each: each.head.high_watermark)
    return [
        OffsetRange(topic=each.topic, key=each.key, head=each.head, start_offset=start, end_offset=end)
        for each, start, end in zip(snapshots, starts, ends, strict=True)
    ]


def starting_offsets(instance: Instance, options: ReadOptions, snapshots: Sequence[PartitionSnapshot]) -> list[int]:
    """The offset at which each partition begins, according to the options."""

    def without_match(each: PartitionSnapshot) -> int:
        if options.is_latest_without_match:
            return each.head.high_watermark
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"partition {each.key.partition} of topic {each.topic!r} has no record at or after the time to start from: "
            "choose an earlier one, or set startingOffsetsByTimestampStrategy=latest to begin at its end",
        )

    return _resolve(instance, options.start, snapshots, "startingOffsets", without_match)


def _resolve(
    instance: Instance,
    bound: Bound,
    snapshots: Sequence[PartitionSnapshot],
    name: str,
    without_match: Callable[[PartitionSnapshot], int],
) -> list[int]:
    if bound.everywhere is not None:
        return [_end(each, bound.everywhere) for each in snapshots]
    if bound.offsets is not None:
        return [
            _end(each, offset) for each, offset in zip(snapshots, _given(bound.offsets, snapshots, name), strict=True)
        ]
    if bound.timestamps_ms is not None:
        times = _given(bound.timestamps_ms, snapshots, f"{name}ByTimestamp")
    else:
        times = [bound.timestamp_ms or 0] * len(snapshots)
    found = instance.executor.map(lambda pair: _first_at(instance, *pair), list(zip(snapshots, times, strict=True)))
    offsets: list[int] = []
    for each, result in zip(snapshots, found, strict=True):
        if isinstance(result, PenstockError):
            raise result
        # The snapshot ends at its high watermark: the read leaves out records appended since.
        is_inside = result is not None and result < each.head.high_watermark
        offsets.append(result if is_inside and result is not None else without_match(each))
    return offsets


def _first_at(instance: Instance, each: PartitionSnapshot, timestamp_ms: int) -> int | None:
    return list_offsets(instance, each.topic, timestamp_ms, each.key.partition).all_ok()[0].offset


def _end(each: PartitionSnapshot, offset: int) -> int:
    ends = {EARLIEST: each.head.log_start_offset, LATEST: each.head.high_watermark}
    return ends.get(offset, offset)


def _given(given: ByPartition, snapshots: Sequence[PartitionSnapshot], name: str) -> list[int]:
    """The number for each partition.

    Raises INVALID_REQUEST unless the option names exactly the partitions of the read.
    """
    expected = {(each.topic, each.key.partition) for each in snapshots}
    named = {(topic, number) for topic, numbers in given.items() for number in numbers}
    if expected != named:
        missing, others = sorted(expected - named), sorted(named - expected)
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{name} must name every partition that is read and no other; missing: {missing or 'none'}, "
            f"not read: {others or 'none'}",
        )
    return [given[each.topic][each.key.partition] for each in snapshots]


def _unknown(topic: Topic, number: int) -> PenstockError:
    return PenstockError(
        ErrorCode.UNKNOWN_PARTITION,
        f"partition {number} of topic {topic.name!r} does not exist: it has 0 to {topic.partitions - 1}",
    )
