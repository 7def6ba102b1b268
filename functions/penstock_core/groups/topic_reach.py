"""Tell how far a group may read a topic with generations of partitions (docs/protocol/partitions)."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from penstock_core.log.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReach:
    """A group reads the partitions below `end`. Those from `start` on are of the newest generation that it reads.

    `late_from` is the first partition of the generation behind the oldest one for which the group has committed. All
    from there on came after the group had begun to read. It is None for a group without a commit in older generations.

    `holder` is the first partition that the group must finish before it reads on behind `end`, None if none waits. It
    was closed at `closed_ms`.
    """

    start: int
    end: int
    late_from: int | None = None
    holder: int | None = None
    closed_ms: int = 0


def topic_reach(topic: Topic, unread: Collection[int], begun: Collection[int]) -> TopicReach:
    """The reach of a group: `unread` has partitions of older generations that it has not read to where they closed.

    `begun` has those partitions for which it has committed an offset.
    """
    older = [*pairwise(topic.generations)]
    end = next((end for start, end in older if _meets(unread, start, end)), topic.partitions)
    return TopicReach(
        start=max(each for each in topic.generations if each < end),
        end=end,
        holder=min((each for each in unread if each < end), default=None),
        late_from=next((end for start, end in older if _meets(begun, start, end)), None),
    )


def _meets(numbers: Collection[int], start: int, end: int) -> bool:
    return any(start <= number < end for number in numbers)
