"""A push: the next batches of a partition of the source, and all that its mirror needs to append them at their place.

```
source   … 100 [ref 100-119] [ref 120-127] 128 …      push: base_offset 100, two parts, ends at 128
mirror   … 100                                         appends if its head ends at 100, and is of the same log
```
The body of the request is a frame (records/frame.py). Its header is `push_header`, and the batches of all parts follow.

The update of the mirror's head asks for three things at once: the mirror that pushes writes the head, the head holds
this log, and it ends where the push begins. So of pushes that are late, doubled, or of a source
that was overtaken by a promotion, none is appended in another place.

A move: a topic ends at its source, and goes on at its mirror from the same offsets (docs/protocol/mirrors).

```
source head    next_offset 120 ──▶ moved_at 120, move 1         no write raises an offset that is not there
mirrored head  next_offset 120, log l1 ──▶ promoted, if it ends at 120, and is of log l1
```
A move has a number. A late step of a move that was given up meets a head, or a mirrored topic, that knows the number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_core.log.retention_raise import with_config
from penstock_core.log.timer import Timer, TimerPlace, scheduled_id
from penstock_core.log.topic import MirrorNote, Topic, TopicConfig, alter_config, config_to_json
from penstock_core.mirror.group_offsets import OffsetsTelling
from penstock_core.mirror.told_timers import (
    TimersAnswer,
    TimersTelling,
    answer_of_timers,
    parse_timers_answer,
    telling_json,
)
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from penstock_core.records.record_batch import BatchesSummary

LOG_ID_BYTES = 10
UNPLANNED = 0  # the number of a promotion without a move: the source counts as lost


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """The topic as the source had it at `settings_ms`. `name` is that of the mirrored topic: with the prefix."""

    name: str
    topic_id: str
    partitions: int
    heads: int | None
    writable: int | None
    layout: int
    generations: tuple[int, ...]
    was_compacted: bool
    config: Mapping[str, Any]
    settings_ms: int

    def is_newer_than(self, topic: Topic) -> bool:
        """True if the source had these settings later than those of its mirror.

        Two functions of the source may differ by their clocks. Layouts and heads only rise, whatever the clocks say.
        """
        heads = self.partitions if self.heads is None else self.heads
        is_older = self.layout < topic.layout or heads < topic.head_count
        return topic.mirror is not None and topic.mirror.settings_ms < self.settings_ms and not is_older

    def applied_to(self, topic: Topic, now_ms: int) -> Topic:
        """The mirrored topic with these partitions and settings. Its own notes stay. Raises INVALID_CONFIG."""
        changed = with_config(topic, alter_config(TopicConfig(), self.config), now_ms)
        return replace(
            changed,
            partitions=self.partitions,
            heads=self.heads,
            writable=self.writable,
            layout=self.layout,
            generations=self.generations,
            was_compacted=self.was_compacted or topic.was_compacted,
        )

    def note_of(self, mirror: str, source: str) -> MirrorNote:
        """The note of a topic that gets these settings."""
        return MirrorNote(name=mirror, topic_id=self.topic_id, source=source, settings_ms=self.settings_ms)


def source_topic(topic: Topic, prefix: str, settings_ms: int) -> SourceTopic:
    """The topic as a push tells it. It was read at `settings_ms` or later."""
    return SourceTopic(
        name=f"{prefix}{topic.name}",
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        heads=topic.heads,
        writable=topic.writable,
        layout=topic.layout,
        generations=topic.generations,
        was_compacted=topic.was_compacted,
        config=config_to_json(topic.config),
        settings_ms=settings_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPart:
    """The batches of one ref of the mirror: as many bytes, and what the ref tells of them.

    `timer` is the place where they have waited as a delayed record of which the mirror was told, all of them.
    """

    length: int
    offset_span: int
    record_count: int
    max_timestamp_ms: int
    appended_ms: int
    tag_filter: int | None = None
    sequence: ProducerSequence | None = None
    may_expire: bool = False
    timer: TimerPlace | None = None

    @property
    def summary(self) -> BatchesSummary:
        """The facts that a put of the batches needs. Their number is not known here, and nothing asks for it."""
        return BatchesSummary(
            record_count=self.record_count,
            offset_span=self.offset_span,
            max_timestamp_ms=self.max_timestamp_ms,
            batch_count=1,
            largest_batch_bytes=self.length,
            sequence=self.sequence,
        )

    def ref_of(self, stored: Ref) -> Ref:
        """The ref of these batches, from that of their append here: they were appended at the source before."""
        return replace(stored, max_timestamp_ms=self.max_timestamp_ms, appended_ms=self.appended_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPush:
    """One push. `producers` are the newest entries of the producers whose batches it has, as the source keeps them.

    One with `offsets` has no parts: `data` is their text. The parts of one with `timers` are no records of the log, but
    copies of delayed ones.
    """

    mirror: str
    source: str
    topic: SourceTopic
    partition: int
    log_id: str
    base_offset: Offset
    parts: Sequence[PushPart]
    producers: Mapping[int, ProducerState] = field(default_factory=dict)
    offsets: OffsetsTelling | None = None
    timers: TimersTelling | None = None
    data: bytes | memoryview = field(repr=False)

    @property
    def next_offset(self) -> Offset:
        """The offset behind the push."""
        return Offset(self.base_offset + sum(part.offset_span for part in self.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAnswer:
    """The mirror's log ends at `next_offset`. It is of another log if it has `diverged`: then nothing was appended.

    `topic_id` is that of the mirrored topic, which has another one once it began anew. "" if the mirror does not tell.
    `offsets_number` is that of the last telling of offsets that the mirror has, in the answer to one.
    """

    next_offset: Offset
    topic_id: str = ""
    diverged: str = ""
    offsets_number: int | None = None
    is_offsets_kept: bool = False
    timers: TimersAnswer | None = None


def answer_json(answer: PushAnswer, partition: Partition) -> dict[str, Any]:
    """The answer's body."""
    told: dict[str, Any] = {"next_offset": answer.next_offset, "topic_id": answer.topic_id}
    if answer.offsets_number is not None:
        told |= {"offsets_number": answer.offsets_number, "is_offsets_kept": answer.is_offsets_kept}
    if answer.timers is not None:
        told["timers"] = answer_of_timers(partition, answer.timers)
    return {**told, "diverged": answer.diverged or None}


def parse_answer(told: Mapping[str, Any]) -> PushAnswer:
    """The inverse of `answer_json`, also of an older release. Raises KeyError, TypeError or ValueError for others."""
    number = told.get("offsets_number")
    return PushAnswer(
        next_offset=Offset(int(told["next_offset"])),
        topic_id=str(told.get("topic_id") or ""),
        diverged=str(told["diverged"] or ""),
        offsets_number=None if number is None else int(number),
        is_offsets_kept=told.get("is_offsets_kept") is True,
        timers=None if told.get("timers") is None else parse_timers_answer(told["timers"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAppend:
    """The append of a push to its head, on condition of mirror, log and place.

    `marks` are those of the timers that have waited for these records: no copy of them waits here from then on.
    """

    mirror: str
    log_id: str
    base_offset: Offset
    refs: tuple[Ref, ...]
    producers: Mapping[int, ProducerState]
    marks: Sequence[Timer] = ()

    def appended_to(self, head: Head) -> Head:
        """The head after this append, without its waiters."""
        return replace(
            head,
            next_offset=Offset(self.base_offset + sum(ref.offset_span for ref in self.refs)),
            tail=(*head.tail, *self.refs),
            producers={**head.producers, **self.producers},
            log_id=self.log_id,
            has_push_waiter=False,
            waiter_ms=None,
        )


def answer_at(head: Head, push: MirrorPush) -> PushAnswer | None:
    """The answer of a head that cannot take the push, None if it can.

    A head that ends behind the push's begin has had it, or another one of the same log: that is a repeat. A head that
    ends before it lacks records, so the source goes back. A promoted one answers repeats. Raises MIRROR_ENDED for a
    head of no or another mirror.
    """
    if not head.mirror and head.log_id == push.log_id and push.next_offset <= (head.promoted_at or 0):
        return PushAnswer(next_offset=Offset(head.promoted_at or 0))  # a repeat: its answer was lost
    if head.mirror != push.mirror:
        raise PenstockError(
            ErrorCode.MIRROR_ENDED,
            f"partition {push.partition} of topic {push.topic.name!r} is not written by mirror {push.mirror!r} any "
            "more: it was promoted. Delete the subscription that pushes",
        )
    if head.next_offset and head.log_id != push.log_id:
        return PushAnswer(
            next_offset=head.next_offset,
            diverged=f"partition {push.partition} of {push.topic.name!r} holds log {head.log_id or 'unknown'} up to "
            f"{head.next_offset}, the source has log {push.log_id} at {push.base_offset}: one of them was restored. "
            "Begin the topic anew by `penstock mirrors resync`",
        )
    return None if head.next_offset == push.base_offset else PushAnswer(next_offset=head.next_offset)


def push_header(push: MirrorPush) -> dict[str, Any]:
    """The header of the frame."""
    offsets = push.offsets
    told = {} if offsets is None else {"offsets": asdict(offsets)}
    if push.timers is not None:
        told["timers"] = telling_json(Partition(push.partition), push.timers)
    return {
        **told,
        "source": push.source,
        "topic": source_json(push.topic),
        "partition": push.partition,
        "log_id": push.log_id,
        "base_offset": push.base_offset,
        "parts": [_part_json(part, push.partition) for part in push.parts],
        "producers": [
            {
                "id": producer_id,
                "epoch": state.epoch,
                "last_sequence": state.last_sequence,
                "written_ms": state.written_ms,
                "checksum": state.checksum,
                "owner": state.owner.hex(),
            }
            for producer_id, state in push.producers.items()
        ],
    }


def source_json(topic: SourceTopic) -> dict[str, Any]:
    """The topic as a push and a promotion tell it."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "heads": topic.heads,
        "writable": topic.writable,
        "layout": topic.layout,
        "generations": [*topic.generations],
        "was_compacted": topic.was_compacted,
        "config": dict(topic.config),
        "settings_ms": topic.settings_ms,
    }


def _part_json(part: PushPart, partition: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "length": part.length,
        "offset_span": part.offset_span,
        "record_count": part.record_count,
        "max_timestamp_ms": part.max_timestamp_ms,
        "appended_ms": part.appended_ms,
    }
    if part.may_expire:
        told["may_expire"] = True
    if part.timer is not None:
        told["timer"] = scheduled_id(Partition(partition), part.timer)
    if part.tag_filter is not None:
        told["tag_filter"] = f"{part.tag_filter:016x}"
    if part.sequence is not None:
        told["producer_id"] = part.sequence.producer_id
        told["producer_epoch"] = part.sequence.epoch
        told["first_sequence"] = part.sequence.first_sequence
    return told


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
