"""Redrive dead letters: move them back to the topic that they came from, or to another one.

A hidden share group of the dead-letter topic remembers which ones were moved. Each move is one transaction: the append
to the target and the note in the hidden group. So a redrive that dies goes on with the next call, and no record is lost
or doubled. A call walks the offsets from a cursor on. It passes over letters that do not move, and tells why.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from penstock_core.acls.rule import Kind, Operation
from penstock_core.acls.rule_set import UNRESTRICTED, Access
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.filters.filter import Filter, matches
from penstock_core.ids import Offset, Partition, PartitionKey, is_reserved, parse_own_topic_name
from penstock_core.limits import (
    MOVED_BYTES_MAX,
    READ_DECODED_BYTES_MAX,
    REDRIVE_AT_ONCE,
    REDRIVE_LOOKS_MAX,
    REDRIVE_MS_MAX,
)
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.records.codec import NewRecord, Record, record_bytes_max
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.acquire import LogBounds
from penstock_core.share.dead_letter import HEADER_PREFIX, TOO_LARGE, UNDECODABLE, redriven
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_core.share.redrive import OpenLetters, open_letters, plan_redrive
from penstock_core.share.share_group import SHARE_GROUP_ID_BYTES, ShareGroup, new_share_group_id, redrive_name
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.transaction import ShareCommit
from penstock_service.index.heads import move_again_if_closed
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.append import is_head_closed, is_head_gone
from penstock_service.share.batches.decode_batches import decode_batches
from penstock_service.share.batches.read_batches import WantedRecords, read_batches
from penstock_service.share.dead_letters.describe_letters import open_ranges, states_of
from penstock_service.share.dead_letters.move_records import MovedRecords, encoded, move_records
from penstock_service.share.dead_letters.place_records import keeps_keys, place_of

_DIGITS_MAX = 9
_CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,18})", re.ASCII)


class RedriveCursor(NamedTuple):
    """The next letter that a redrive looks at."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"


def parse_redrive_cursor(text: str) -> RedriveCursor:
    """The inverse of `str`. Raises INVALID_REQUEST."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"cursor={shown(text)}: must be as the last answer gave it")
    return RedriveCursor(int(found[1]), int(found[2]))


class SkipReason(Enum):
    """The reason why a letter stays."""

    NOT_MATCHING = "not_matching"  # the filter does not take it
    NO_TOPIC = "no_topic"  # no header tells its topic, or it is gone, or the caller may not write it
    UNDECODABLE = "undecodable"  # it is a batch that cannot be decoded, or lies in one
    TOO_LARGE = "too_large"  # no batch holds it, or it only names such a record
    UNREADABLE = "unreadable"  # no zone has it now
    NO_ROOM = "no_room"  # too many runs of letters have moved and stayed in turns


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveWish:
    """The records to move: `records_max` of those that match, to the topic `to`; None: to where they came from.

    It begins at the cursor of the call before; None: at the first letter. `only` is the one letter to look at.
    `is_drop`: the letters move nowhere, and are done.
    """

    to: str | None = None
    wanted: Filter | None = None
    records_max: int
    cursor: RedriveCursor | None = None
    only: RedriveCursor | None = None
    is_drop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The work of a call. `remaining` counts all records of the topic that were not moved, skipped ones among them.

    `cursor` is where the next call goes on, None at the end of the topic. `skipped_by` counts the skipped by reason.
    """

    moved: int
    remaining: int
    skipped: int
    skipped_by: Mapping[SkipReason, int] = field(default_factory=dict)
    cursor: RedriveCursor | None = None


@dataclass(slots=True, kw_only=True)
class _Portion:
    """The records of one transaction by their target, all below `end`, and the offsets that are not moved."""

    end: int
    by_target: dict[PartitionKey, list[NewRecord]] = field(default_factory=dict)
    topics: dict[PartitionKey, Topic] = field(default_factory=dict)
    moved: list[Range] = field(default_factory=list)
    removed: Ranges = ()
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    bytes_left: int = MOVED_BYTES_MAX // 2


def redrive(instance: Instance, topic_name: str, wish: RedriveWish, access: Access = UNRESTRICTED) -> Redriven:
    """Move up to `records_max` dead letters of the topic.

    For each `REDRIVE_AT_ONCE` records: two reads, a read of the records, one put per zone, one transaction. Letters
    that stay cost reads only. The first call for a topic makes the hidden group. It ends after about `REDRIVE_MS_MAX`:
    call again from its cursor on. Raises UNKNOWN_TOPIC, INVALID_REQUEST, and the errors of storage; what was moved by
    then stays moved.
    """
    topic = instance.topic_cache.read_through(parse_own_topic_name(topic_name))
    to = None if wish.to is None else instance.topic_cache.read_through(parse_own_topic_name(wish.to))
    if to is not None and to.topic_id == topic.topic_id:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"to={shown(wish.to)}: is the dead-letter topic itself")
    redriving = _Redrive(instance, topic, _hidden_group(instance, topic), wish, access)
    cursor = redriving.walk()
    with errors_maybe_applied(has_begun=redriving.may_have_moved):
        remaining = redriving.remaining()
    return Redriven(
        moved=redriving.moved,
        remaining=remaining,
        skipped=redriving.skipped.total(),
        skipped_by=redriving.skipped,
        cursor=cursor,
    )


def _hidden_group(instance: Instance, topic: Topic) -> ShareGroup:
    """The hidden group of the topic, which is made if it is missing."""
    share = instance.stores.share
    name = redrive_name(topic.topic_id)
    group = share.get_group(name)
    if group is not None:
        return group
    group = ShareGroup(
        name=name,
        share_group_id=new_share_group_id(instance.entropy.random_bytes(SHARE_GROUP_ID_BYTES)),
        created_at_ms=instance.clock.now_ms(),
        topics={topic.name: topic.topic_id},
    )
    try:
        share.change_group(None, group)
    except PenstockError as error:
        found = share.get_group(name)
        if error.code is not ErrorCode.CONCURRENT_UPDATE or found is None:
            raise
        return found
    return group


class _Redrive:
    """One call."""

    def __init__(self, instance: Instance, topic: Topic, group: ShareGroup, wish: RedriveWish, access: Access) -> None:
        self._instance = instance
        self._topic = topic
        self._group = group
        self._wish = wish
        self._access = access
        self._looks_left = REDRIVE_LOOKS_MAX
        self._end_ms = instance.clock.monotonic_ms() + REDRIVE_MS_MAX
        self.moved = 0
        self.may_have_moved = False  # also by a transaction whose answer was lost, and whose repeat was refused
        self.skipped: Counter[SkipReason] = Counter()

    def walk(self) -> RedriveCursor | None:
        """Move records, partition by partition, until the call is done. Returns the next cursor, None at the end."""
        first, offset = self._wish.only or self._wish.cursor or (0, 0)
        for number in self._topic.all_partitions():
            if number < first or (self._wish.only is not None and number > first):
                continue
            next_offset: int | None = offset if number == first else 0
            while next_offset is not None:
                if self._is_over():
                    return RedriveCursor(number, next_offset)
                self._looks_left -= 1
                with errors_maybe_applied(has_begun=self.may_have_moved):
                    next_offset = self._portion(number, next_offset)
        return None

    def _is_over(self) -> bool:
        is_late = self._instance.clock.monotonic_ms() > self._end_ms
        return is_late or self._looks_left <= 0 or self.moved >= self._wish.records_max

    def remaining(self) -> int:
        """The records that the hidden group has not finished."""
        states = states_of(self._instance, self._topic, self._group.share_group_id)
        return sum(RecordSet(open_ranges(head, state)).count for _, head, state in states)

    def _portion(self, number: Partition, offset: int) -> int | None:
        """Move some records from the offset on. The offset behind them; None at the end of the partition."""
        window = UpdateWindow.open(self._instance.clock)
        key = ShareKey(self._group.share_group_id, self._topic.topic_id, number)
        head = self._instance.stores.log.heads([key.partition_key]).get(key.partition_key)
        if head is None:
            return None
        log = LogBounds.of(head)
        state = self._instance.stores.share.find_states([key]).get(key)
        known = state or ShareState(position=Offset(0))
        found = self._open(known, log, offset)
        portion = _Portion(end=found.end)
        names: list[str] = []  # of the topics that the records go to

        def move() -> bool:
            nonlocal portion
            portion = self._sorted_out(key, head, found)
            names[:] = sorted({topic.name for topic in portion.topics.values()})
            done = normalized((*portion.moved, *portion.removed))
            if not done:
                return True
            share = self._instance.stores.share
            if state is None and share.begin_state(self._group.name, key, Offset(0)) != known:
                return False  # another call has begun it, and moved some
            update = plan_redrive(known, log, done, self._instance.clock.now_ms())
            if update is None:
                portion.skipped[SkipReason.NO_ROOM] += RecordSet(normalized(portion.moved)).count
                portion.moved.clear()
                return True
            return self._move(portion, ShareCommit(key=key, update=update), window)

        try:
            is_done = move_again_if_closed(self._instance, names, move) if found.ranges else True
        except PenstockError as error:
            if not (is_head_gone(error) or is_head_closed(error)):
                raise
            for name in names:
                self._instance.topic_cache.forget(name)  # deleted or altered meanwhile: look it up again
            is_done = False
        if not is_done:
            return offset  # another call was faster
        self.moved += RecordSet(normalized(portion.moved)).count
        self.skipped += portion.skipped
        is_over = self._wish.only is not None or portion.end >= head.next_offset
        return None if is_over else portion.end

    def _open(self, state: ShareState, log: LogBounds, offset: int) -> OpenLetters:
        """The next letters from the offset on, or the one that is asked for."""
        found = open_letters(state, log, offset, self._instance.clock.now_ms())
        if self._wish.only is None:
            return found
        return OpenLetters(ranges=RecordSet(found.ranges).only(((offset, offset + 1),)).ranges, end=offset + 1)

    def _move(self, portion: _Portion, share: ShareCommit, window: UpdateWindow) -> bool:
        """Move the records of the portion. False if another call has them."""
        moved = [
            MovedRecords(topic=portion.topics[target], key=target, data=encoded(records) or b"")
            for target, records in portion.by_target.items()
        ]
        if moved:
            try:
                outcome = move_records(self._instance, moved, share, window)
            except PenstockError as error:
                self.may_have_moved |= error.maybe_applied
                raise
            self.may_have_moved |= outcome.is_applied or outcome.maybe_applied
            return outcome.is_applied
        window.check()
        return self._instance.stores.share.update(share.key, share.update).is_applied

    def _sorted_out(self, key: ShareKey, head: Head, found: OpenLetters) -> _Portion:
        """Read the records, and tell where each of them goes."""
        portion = _Portion(end=found.end)
        asked = WantedRecords(key=key.partition_key, head=head, ranges=found.ranges)
        [read] = read_batches(self._instance, [asked])
        there = RecordSet(found.ranges).minus(read.removed).ranges
        decoded = decode_batches(read.batches, there, DecodeBudget(READ_DECODED_BYTES_MAX))
        portion.end = min([portion.end, *(start for start, _ in (*read.left_out[:1], *decoded.left_out[:1]))])
        for record in decoded.records:
            if record.offset >= portion.end or not self._place(portion, record):
                portion.end = min(portion.end, record.offset)
                break
        seen = ((0, portion.end),)
        portion.removed = RecordSet(normalized((*read.removed, *decoded.removed))).only(seen).ranges
        portion.skipped[SkipReason.UNREADABLE] += RecordSet(read.unreadable).only(seen).count
        portion.skipped[SkipReason.UNDECODABLE] += RecordSet(decoded.undecodable).only(seen).count
        return portion

    def _place(self, portion: _Portion, record: Record) -> bool:
        """Add the record to the portion, or to what is skipped. False if it comes with the next portion."""
        if self._wish.is_drop:
            return self._drop(portion, record)
        target = self._target(record)
        if isinstance(target, SkipReason):
            portion.skipped[target] += 1
            return True
        letter = redriven(record, self._instance.clock.now_ms())
        size = record_bytes_max(record.key, record.value, letter.headers)
        most = min(REDRIVE_AT_ONCE, self._wish.records_max - self.moved)
        if len(portion.moved) >= most or (portion.moved and size > portion.bytes_left):
            return False
        if not portion.moved and encoded([letter]) is None:
            portion.skipped[SkipReason.TOO_LARGE] += 1
            return True
        topic, key = target
        portion.bytes_left -= size
        portion.moved.append((record.offset, record.offset + 1))
        portion.topics[key] = topic
        portion.by_target.setdefault(key, []).append(letter)
        return True

    def _drop(self, portion: _Portion, record: Record) -> bool:
        """Let the record be done. False if it comes with the next portion."""
        if self._wish.wanted is not None and not matches(self._wish.wanted, record.headers):
            portion.skipped[SkipReason.NOT_MATCHING] += 1
            return True
        if len(portion.moved) >= self._wish.records_max - self.moved:
            return False
        portion.moved.append((record.offset, record.offset + 1))
        return True

    def _target(self, record: Record) -> tuple[Topic, PartitionKey] | SkipReason:
        """The topic and partition that the record goes to, or the reason why it stays."""
        told = {
            name.removeprefix(HEADER_PREFIX): value.decode(errors="replace")
            for name, value in record.headers
            if name.startswith(HEADER_PREFIX) and value is not None
        }
        if self._wish.wanted is not None and not matches(self._wish.wanted, record.headers):
            return SkipReason.NOT_MATCHING
        reason = told.get("reason")
        if reason in (UNDECODABLE, TOO_LARGE):
            return SkipReason.UNDECODABLE if reason == UNDECODABLE else SkipReason.TOO_LARGE
        name = told.get("topic") if self._wish.to is None else self._wish.to
        # A producer of the dead-letter topic can write any topic's name into the header.
        if name is None or not self._access.may(Operation.WRITE, Kind.TOPIC, name):
            return SkipReason.NO_TOPIC
        topic = _found(self._instance, name)
        if topic is None or topic.topic_id == self._topic.topic_id:
            return SkipReason.NO_TOPIC
        number = _number(told.get("partition", ""))
        return topic, place_of(topic, record.key, number, by_key=keeps_keys(topic))


def _number(text: str) -> int:
    """The partition that a header tells, 0 if it tells none."""
    return int(text) if len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit() else 0


def _found(instance: Instance, name: str) -> Topic | None:
    """The topic; None also for a header that names none."""
    try:
        is_own = not is_reserved(name)  # the record's own header may name any topic
        return instance.topic_cache.find(name) if is_own else None
    except PenstockError as error:
        if error.code is not ErrorCode.INVALID_NAME:
            raise
        return None
