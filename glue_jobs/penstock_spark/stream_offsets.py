"""How far a stream has come: what Spark keeps in its checkpoint, and how far the next micro-batch goes.

An offset of the stream is JSON, `{"orders": {"0": 17, "1": 4}, "#ids": {"orders": "<topic id>"}}`: as Spark's Kafka
source has it, and the topics' ids, so that a topic that was deleted and created again is not taken for the old one.
What lies between two such offsets is the same whenever it is asked, which is what a restart after a crash counts on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicId
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_spark.planning import OffsetRange, data_loss
from penstock_spark.snapshot import Seen

_IDS = "#ids"  # no topic's name has a #


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What has been read of one partition: all below `offset`."""

    topic: str
    key: PartitionKey
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What there is to read of one partition: `[start_offset, end_offset)`."""

    topic: str
    key: PartitionKey
    start_offset: int
    end_offset: int


Positions = Sequence[Position]


def to_json(positions: Positions) -> dict[str, Any]:
    """Topics by name, partitions by number, so that equal positions are equal text."""
    offsets: dict[str, Any] = {}
    ids: dict[str, str] = {}
    for each in sorted(positions, key=lambda each: (each.topic, each.key.partition)):
        offsets.setdefault(each.topic, {})[str(each.key.partition)] = each.offset
        ids[each.topic] = each.key.topic_id
    return {**offsets, _IDS: ids}


def from_json(document: Mapping[str, Any]) -> list[Position]:
    """The inverse of `to_json`. Raises INVALID_REQUEST for what it did not write."""
    try:
        ids = document[_IDS]
        return [
            Position(topic=topic, key=PartitionKey(TopicId(ids[topic]), Partition(int(number))), offset=int(offset))
            for topic, offsets in document.items()
            if topic != _IDS
            for number, offset in offsets.items()
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{document!r:.300} is no offset of a penstock stream: use another checkpoint"
        ) from error


def extents_of(seen: Sequence[Seen]) -> list[Extent]:
    """All that the partitions hold."""
    return [
        Extent(
            topic=each.topic,
            key=each.key,
            start_offset=each.head.log_start_offset,
            end_offset=each.head.high_watermark,
        )
        for each in seen
    ]


def ends_of(extents: Sequence[Extent]) -> list[Position]:
    """Where all of it has been read."""
    return [Position(topic=each.topic, key=each.key, offset=each.end_offset) for each in extents]


def within(extents: Sequence[Extent], target: Sequence[Extent]) -> list[Extent]:
    """Of the extents what the target had already; of its partitions only."""
    ends = {each.key: each.end_offset for each in target}
    return [replace(each, end_offset=min(each.end_offset, ends[each.key])) for each in extents if each.key in ends]


def next_positions(
    start: Positions, extents: Sequence[Extent], *, offsets_max: int | None, fails_on_data_loss: bool
) -> list[Position]:
    """Where a micro-batch from `start` ends that may read what the extents have, and `offsets_max` offsets at most:
    divided among the partitions in proportion to what is there to read. A new partition begins at its log start.

    Raises OFFSET_OUT_OF_RANGE if a partition read before has no extent any more, unless that is no failure.
    """
    read = {each.key: each for each in start}
    found = {each.key for each in extents}
    for gone in [each for each in start if each.key not in found]:
        if fails_on_data_loss:
            raise data_loss(gone.topic, gone.key, gone.offset, gone.offset, None)
    begins = [read[each.key].offset if each.key in read else each.start_offset for each in extents]
    waiting = [max(0, each.end_offset - begin) for each, begin in zip(extents, begins, strict=True)]
    shares = waiting if offsets_max is None else divide(waiting, offsets_max)
    return [
        Position(topic=each.topic, key=each.key, offset=begin + share)
        for each, begin, share in zip(extents, begins, shares, strict=True)
    ]


def divide(waiting: Sequence[int], limit: int) -> list[int]:
    """`limit` or fewer in shares in proportion to `waiting`, none above it: all of it, if that is not more."""
    total = sum(waiting)
    if total <= limit:
        return list(waiting)
    shares = [each * limit // total for each in waiting]
    remainders = sorted(range(len(waiting)), key=lambda index: waiting[index] * limit % total, reverse=True)
    for index in remainders[: limit - sum(shares)]:
        shares[index] += 1
    return shares


def positions_ahead(start: Positions, end: Positions) -> list[Position]:
    """Of `end`, the positions of partitions that have something to read since `start`."""
    begins = {each.key: each.offset for each in start}
    return [each for each in end if begins.get(each.key, 0) < each.offset]


def positions_left_out(start: Positions, end: Positions) -> list[Position]:
    """Of `start`, the positions of partitions that `end` does not have: their topics are deleted, or they were not
    there when a first micro-batch was planned, which runs again."""
    ended = {each.key for each in end}
    return [each for each in start if each.key not in ended]


def ranges_between(
    heads: Mapping[PartitionKey, Head], start: Positions, end: Positions, *, fails_on_data_loss: bool
) -> list[OffsetRange]:
    """What lies between, by the heads of what is ahead and left out; a partition that `start` does not have is read
    from its log start. Raises OFFSET_OUT_OF_RANGE for partitions that are gone, unless that is no failure."""
    begins = {each.key: each.offset for each in start}
    for gone in positions_left_out(start, end):
        if gone.key not in heads and fails_on_data_loss:
            raise data_loss(gone.topic, gone.key, gone.offset, gone.offset, None)
    ranges: list[OffsetRange] = []
    for each in positions_ahead(start, end):
        begin = begins.get(each.key, 0)
        head = heads.get(each.key)
        if head is None:
            if fails_on_data_loss:
                raise data_loss(each.topic, each.key, begin, each.offset, None)
            continue
        if each.key not in begins:
            begin = min(head.log_start_offset, each.offset)
        ranges.append(
            OffsetRange(topic=each.topic, key=each.key, head=head, start_offset=begin, end_offset=each.offset)
        )
    return ranges
