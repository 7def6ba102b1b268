"""A move: a topic ends at its source, and goes on at its mirror from the same offsets (docs/protocol/mirrors).

```
source head    next_offset 120 ──▶ moved_at 120, move 1         no write raises an offset that is not there
mirrored head  next_offset 120, log l1 ──▶ promoted, if it ends at 120, and is of log l1
```
A move has a number. What is late of a move that was given up meets a head, or a mirrored topic, that knows the number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.log.topic import MirrorNote
from penstock_core.mirror.push import SourceTopic

UNPLANNED = 0
"""The number of a promotion without a move: the source counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """A log and the offset where it ends."""

    log_id: str
    next_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMove:
    """The end of a head by the move of this number. `log_id` is for a log that has no name, and `now_ms` closes it."""

    number: int
    log_id: str
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadReopening:
    """A head of the move `number` that goes on: in this layout, open or closed at `closed_ms`.

    `log_id` renames the log, "" to keep its name: its mirror may have been promoted, and is another log from now on.
    """

    number: int
    layout: int
    closed_ms: int | None
    log_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPromotion:
    """The promotion of a mirrored topic, by its id, once it is as its source was when that was moved.

    `ends` has an end for each head of the source's topic. `mirror` is the subscription that pushes.
    """

    number: int
    mirror: str
    topic_id: str
    source: SourceTopic
    ends: Mapping[Partition, LogEnd]


def decide(note: MirrorNote, number: int) -> int:
    """The number that decides the promotion, this one or an earlier one.

    Raises CONCURRENT_UPDATE for a move that was given up.
    """
    if 0 < number <= note.refused:
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"move {number} of this topic was given up, and its source takes the appends again: move it anew",
        )
    return number if note.decided < 0 else note.decided


def refuse(note: MirrorNote | None, number: int) -> int:
    """The last move that promotes nothing, once this one does not. Raises MIRROR_ENDED once a promotion is decided."""
    if note is None or note.decided >= 0:
        raise PenstockError(
            ErrorCode.MIRROR_ENDED,
            "the promotion of this topic has begun, and may have ended: it cannot be given up. Promote it to the end",
        )
    return max(note.refused, number)
