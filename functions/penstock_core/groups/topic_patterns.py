"""Patterns of topic names: `*` stands for any characters, also none. Every other character stands for itself.

There are no regular expressions: the service evaluates patterns that members send, and must do it in linear time.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import is_reserved
from penstock_core.limits import NAME_LENGTH_MAX
from penstock_core.log.topic import Topic

WILDCARD = "*"
PATTERN_CHARACTERS = "[A-Za-z0-9._*-]+"
_PATTERN = re.compile(PATTERN_CHARACTERS, re.ASCII)


def check_pattern(pattern: str) -> None:
    """Raises INVALID_NAME unless some topic name could match."""
    if len(pattern) > NAME_LENGTH_MAX or not _PATTERN.fullmatch(pattern):
        raise PenstockError(
            ErrorCode.INVALID_NAME,
            f"topic pattern {shown(pattern)}: use 1 to {NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ - and * for any characters",
        )


def matches(pattern: str, name: str) -> bool:
    """True if the pattern describes the whole name.

    It looks for each part of the pattern behind the end of the part before. Only its own name describes a reserved
    topic.
    """
    if is_reserved(name) and name != pattern:
        return False
    first, *others = pattern.split(WILDCARD)
    if not others:
        return name == pattern
    *middle, last = others
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    position, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


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
