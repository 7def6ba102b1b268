"""The offsets of a stream: the form that Spark keeps in its checkpoint, and the choice of the next micro-batch's end.

An offset of the stream is JSON, `{"orders": {"0": 17, "1": 4}, "#ids": {"orders": "<topic id>"}}`. It has the form of
Spark's Kafka source, plus the topics' ids. The ids tell a topic from an earlier one of the same name that was deleted.
Two such offsets always bound the same records. A restart after a crash relies on that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.index import Head, Jump, advanced, count_between
from penstock_spark.plan.planning import OffsetRange, data_loss
from penstock_spark.plan.snapshot import PartitionSnapshot

OPEN = 2**62  # behind each layout
_IDS = "#ids"  # cannot collide: topic names have no "#"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The progress of a read in one partition: the read has taken all records below `offset`."""

    topic: str
    key: PartitionKey
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The readable offsets of one partition: `[start_offset, end_offset)`.

    `turn` is the layout in which the partition was closed, OPEN if it takes records. Closed ones of a topic come before
    later ones, because a key may have moved from one to the other (docs/protocol/partitions). `jumps` have no record.
    """

    topic: str
    key: PartitionKey
    start_offset: int
    end_offset: int
    turn: int = OPEN
    jumps: tuple[Jump, ...] = ()


Positions = Sequence[Position]


def to_json(positions: Positions) -> dict[str, Any]:
    """The positions as JSON, ordered by topic and partition, so that equal positions give equal text."""
    offsets: dict[str, Any] = {}
    ids: dict[str, str] = {}
    for each in sorted(positions, key=lambda each: (each.topic, each.key.partition)):
        offsets.setdefault(each.topic, {})[str(each.key.partition)] = each.offset
        ids[each.topic] = each.key.topic_id
    return {**offsets, _IDS: ids}


def from_json(document: Mapping[str, Any]) -> list[Position]:
    """The inverse of `to_json`. Raises INVALID_REQUEST for any other document."""
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


def extents_of(snapshots: Sequence[PartitionSnapshot]) -> list[Extent]:
    """All readable offsets of the partitions."""
    return [
        Extent(
            topic=each.topic,
            key=each.key,
            start_offset=each.head.log_start_offset,
            end_offset=each.head.high_watermark,
            turn=each.head.layout if each.head.is_closed else OPEN,
            jumps=each.head.jumps,
        )
        for each in snapshots
    ]


def ends_of(extents: Sequence[Extent]) -> list[Position]:
    """The positions behind the last record of each extent."""
    return [Position(topic=each.topic, key=each.key, offset=each.end_offset) for each in extents]


def within(extents: Sequence[Extent], target: Sequence[Extent]) -> list[Extent]:
    """The extents, cut to the ends of `target`. Partitions that `target` does not have are left out."""
    ends = {each.key: each.end_offset for each in target}
    return [replace(each, end_offset=min(each.end_offset, ends[each.key])) for each in extents if each.key in ends]


def next_positions(
    start: Positions, extents: Sequence[Extent], *, offsets_max: int | None, fails_on_data_loss: bool
) -> list[Position]:
    """The end of a micro-batch that begins at `start`: at most `offsets_max` offsets, all within the extents.

    The partitions share `offsets_max` in proportion to their unread offsets, those of a topic that were closed before
    the others. So no micro-batch has records of a partition while an earlier one of its topic is left for the next. A
    new partition begins at its log start.
    Raises OFFSET_OUT_OF_RANGE if a partition of `start` has no extent any more and the read `fails_on_data_loss`.
    """
    read = {each.key: each for each in start}
    found = {each.key for each in extents}
    for gone in [each for each in start if each.key not in found]:
        if fails_on_data_loss:
            raise data_loss(gone.topic, gone.key, gone.offset, gone.offset, None)
    begins = [read[each.key].offset if each.key in read else each.start_offset for each in extents]
    waiting = [count_between(each.jumps, begin, each.end_offset) for each, begin in zip(extents, begins, strict=True)]
    shares = waiting if offsets_max is None else _in_turn(extents, waiting, offsets_max)
    return [
        Position(topic=each.topic, key=each.key, offset=_behind(each, begin, share, is_all=share == count))
        for each, begin, share, count in zip(extents, begins, shares, waiting, strict=True)
    ]


def _behind(extent: Extent, begin: int, share: int, *, is_all: bool) -> int:
    """The position behind a share of the unread offsets: the extent's end behind all of them, jumps included."""
    return max(begin, extent.end_offset) if is_all else advanced(extent.jumps, begin, share)


def _in_turn(extents: Sequence[Extent], waiting: Sequence[int], limit: int) -> list[int]:
    """Shares as `divide` makes them, of the partitions of each topic whose turn it is. The rest goes to the next."""
    shares = [0] * len(waiting)
    while limit > 0 and sum(shares) < sum(waiting):
        left = [each - share for each, share in zip(waiting, shares, strict=True)]
        turns: dict[str, int] = {}
        for each, more in zip(extents, left, strict=True):
            if more:
                turns[each.key.topic_id] = min(each.turn, turns.get(each.key.topic_id, OPEN))
        is_now = [turns.get(each.key.topic_id) == each.turn for each in extents]
        added = divide([more if now else 0 for more, now in zip(left, is_now, strict=True)], limit)
        shares = [share + more for share, more in zip(shares, added, strict=True)]
        limit -= sum(added)
    return shares


def divide(waiting: Sequence[int], limit: int) -> list[int]:
    """Shares in proportion to `waiting`, each at most its entry.

    They sum to `limit`, or to all that waits if that is less.
    """
    total = sum(waiting)
    if total <= limit:
        return list(waiting)
    shares = [each * limit // total for each in waiting]
    remainders = sorted(range(len(waiting)), key=lambda index: waiting[index] * limit % total, reverse=True)
    for index in remainders[: limit - sum(shares)]:
        shares[index] += 1
    return shares


def positions_ahead(start: Positions, end: Positions) -> list[Position]:
    """The positions of `end` in partitions that have unread records since `start`."""
    begins = {each.key: each.offset for each in start}
    return [each for each in end if begins.get(each.key, 0) < each.offset]


def positions_left_out(start: Positions, end: Positions) -> list[Position]:
    """The positions of `start` in partitions that `end` does not have.

    Either their topics are deleted, or a first micro-batch runs again that was planned before these partitions existed.
    """
    ended = {each.key for each in end}
    return [each for each in start if each.key not in ended]


def ranges_between(
    heads: Mapping[PartitionKey, Head], start: Positions, end: Positions, *, fails_on_data_loss: bool
) -> list[OffsetRange]:
    """The offset ranges between two stream offsets. `heads` holds the heads of the partitions ahead and left out.

    A partition that `start` does not have is read from its log start. Raises OFFSET_OUT_OF_RANGE if a partition is gone
    and the read `fails_on_data_loss`.
    """
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
