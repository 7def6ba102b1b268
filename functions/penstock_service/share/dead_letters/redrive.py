"""Redrive dead letters: move them back to the topic that they came from, or to another one.

A hidden share group of the dead-letter topic remembers which ones were moved. Each move is one transaction: the append
to the target and the acceptance in the hidden group. So a redrive that dies goes on with the next call, and no record
is lost or doubled. What a call skips stays: it comes up again after `REDRIVE_PAUSE_MS`.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock_core.acls.access import UNRESTRICTED, Access
from penstock_core.acls.right import Kind, Operation
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.filters.filter import Filter, matches
from penstock_core.ids import RESERVED_PREFIX, LockNonce, Offset, Partition, PartitionKey, parse_own_topic_name
from penstock_core.limits import (
    MOVED_BYTES_MAX,
    READ_DECODED_BYTES_MAX,
    REDRIVE_AT_ONCE,
    REDRIVE_LOOKS_MAX,
    REDRIVE_MS_MAX,
    REDRIVE_PAUSE_MS,
    SHARE_ACQUIRE_ATTEMPTS_MAX,
    SHARE_UNREAD_PAUSE_MS,
)
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.records.codec import NewRecord, Record, record_bytes_max
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.share.acknowledge import Acknowledgement, AckType, plan_acknowledge
from penstock_core.share.acquire import AcquireRequest, Grant, LogBounds, grants, plan_acquire
from penstock_core.share.dead_letter import HEADER_PREFIX, UNDECODABLE, own_headers
from penstock_core.share.record_set import Range, RecordSet, normalized
from penstock_core.share.share_group import SHARE_GROUP_ID_BYTES, ShareGroup, new_share_group_id, redrive_name
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.transaction import ShareCommit
from penstock_service.index.open_partitions import move_again_if_closed
from penstock_service.instance.instance import Instance
from penstock_service.records.append import is_head_closed, is_head_gone
from penstock_service.segments.update_window import UpdateWindow
from penstock_service.share.batches.decode_batches import decode_batches
from penstock_service.share.batches.read_batches import WantedRecords, read_batches
from penstock_service.share.dead_letters.move_records import MovedRecords, encoded, move_records
from penstock_service.share.dead_letters.place_records import keeps_keys, place_of

_LOCK_MS = 60_000
_NONCE_BYTES = 6
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveWish:
    """The records to move: `records_max` of those that match, to the topic `to`; None: to where they came from."""

    to: str | None = None
    wanted: Filter | None = None
    records_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a call did. `remaining` counts all records of the topic that were not moved, skipped ones among them."""

    moved: int
    remaining: int
    skipped: int


@dataclass(slots=True, kw_only=True)
class _Portion:
    """The records of one transaction by their target, and the offsets that are not moved."""

    by_target: dict[PartitionKey, list[NewRecord]] = field(default_factory=dict)
    topics: dict[PartitionKey, Topic] = field(default_factory=dict)
    moved: list[Range] = field(default_factory=list)
    removed: list[Range] = field(default_factory=list)
    skipped: list[Range] = field(default_factory=list)
    later: list[Range] = field(default_factory=list)
    unreadable: list[Range] = field(default_factory=list)
    bytes_left: int = MOVED_BYTES_MAX // 2


def redrive(instance: Instance, topic_name: str, wish: RedriveWish, access: Access = UNRESTRICTED) -> Redriven:
    """Move up to `records_max` dead letters of the topic.

    For each `REDRIVE_AT_ONCE` records: two reads, an update, a read of the records, one put per zone, one transaction.
    The first call for a topic makes the hidden group. It ends after about `REDRIVE_MS_MAX`: call again while records
    remain. It skips records that do not match, that no header tells the source of, or whose target is missing
    or not one that `access` may write. Raises
    UNKNOWN_TOPIC, INVALID_REQUEST, and the errors of storage; what was moved by then stays moved.
    """
    topic = instance.topic_cache.read_through(parse_own_topic_name(topic_name))
    to = None if wish.to is None else instance.topic_cache.read_through(parse_own_topic_name(wish.to))
    if to is not None and to.topic_id == topic.topic_id:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"to={shown(wish.to)}: is the dead-letter topic itself")
    redriving = _Redrive(instance, topic, _hidden_group(instance, topic), wish, access)
    for number in topic.all_partitions():
        redriving.partition(number)
    return Redriven(moved=redriving.moved, remaining=redriving.remaining(), skipped=redriving.skipped)


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
        self.skipped = 0

    def partition(self, number: Partition) -> None:
        """Move records of one partition, until there are no more or the call is done."""
        key = ShareKey(self._group.share_group_id, self._topic.topic_id, number)
        while self.moved < self._wish.records_max and self._looks_left > 0:
            if self._instance.clock.monotonic_ms() > self._end_ms or not self._portion(key):
                return
            self._looks_left -= 1

    def remaining(self) -> int:
        """The records that the hidden group has not finished."""
        keys = [ShareKey(self._group.share_group_id, self._topic.topic_id, n) for n in self._topic.all_partitions()]
        states = self._instance.stores.share.find_states(keys)
        heads = self._instance.stores.log.heads([key.partition_key for key in keys])
        left = 0
        for key in keys:
            head, state = heads.get(key.partition_key), states.get(key, ShareState(position=Offset(0)))
            if head is not None:
                left += RecordSet(state.unfinished()).minus(((0, head.log_start_offset),)).count
                left += max(0, head.next_offset - max(state.position, head.log_start_offset))
        return left

    def _portion(self, key: ShareKey) -> bool:
        """Lock some records and move them. False if there are none, or if another call has them."""
        window = UpdateWindow.open(self._instance.clock)
        head = self._instance.stores.log.heads([key.partition_key]).get(key.partition_key)
        if head is None:
            return False
        locked = self._locked(key, head)
        if locked is None:
            return False
        state, found = locked
        names: list[str] = []  # of the topics that the records go to

        def move() -> bool:
            portion = self._sorted_out(key, head, found)
            names[:] = sorted({topic.name for topic in portion.topics.values()})
            acknowledgements = [*_acknowledgements(found, portion)]
            plan = plan_acknowledge(state, self._group.config, acknowledgements, self._instance.clock.now_ms())
            if plan.update is None or not self._move(portion, ShareCommit(key=key, update=plan.update), window):
                return False
            self.moved += RecordSet(normalized(portion.moved)).count
            self.skipped += RecordSet(normalized(portion.skipped)).count
            return True

        try:
            return move_again_if_closed(self._instance, names, move)
        except PenstockError as error:
            if not (is_head_gone(error) or is_head_closed(error)):
                raise
            for name in names:
                self._instance.topic_cache.forget(name)  # deleted or altered meanwhile: look it up again next time
            return False

    def _move(self, portion: _Portion, share: ShareCommit, window: UpdateWindow) -> bool:
        """Move the records of the portion. False if another call has them."""
        moved = [
            MovedRecords(topic=portion.topics[target], key=target, data=encoded(records) or b"")
            for target, records in portion.by_target.items()
        ]
        if moved:
            return move_records(self._instance, moved, share, window)
        return self._instance.stores.share.update(share.key, share.update).is_applied

    def _locked(self, key: ShareKey, head: Head) -> tuple[ShareState, list[Grant]] | None:
        share = self._instance.stores.share
        if head.next_offset == head.log_start_offset:
            return None
        state = share.find_states([key]).get(key) or share.begin_state(self._group.name, key, Offset(0))
        if state is None:
            return None
        nonce = LockNonce(base64.urlsafe_b64encode(self._instance.entropy.random_bytes(_NONCE_BYTES)).decode())
        request = AcquireRequest(
            nonce=nonce,
            records_max=min(REDRIVE_AT_ONCE, self._wish.records_max - self.moved),
            lock_ms=_LOCK_MS,
            now_ms=self._instance.clock.now_ms(),
        )
        log = LogBounds(log_start=head.log_start_offset, next_offset=head.next_offset)
        for _ in range(SHARE_ACQUIRE_ATTEMPTS_MAX):
            plan = plan_acquire(state, self._group.config, log, request)
            if plan.update is None:
                return None
            outcome = share.update(key, plan.update)
            if outcome.after is not None:
                found = grants(outcome.after, nonce)
                return (outcome.after, found) if found else None
            if outcome.before is None:
                return None
            state = outcome.before
        return None

    def _sorted_out(self, key: ShareKey, head: Head, found: Sequence[Grant]) -> _Portion:
        """Read the locked records, and tell where each of them goes."""
        portion = _Portion()
        ranges = normalized(span for grant in found for span in grant.records.ranges)
        [read] = read_batches(self._instance, [WantedRecords(key=key.partition_key, head=head, ranges=ranges)])
        portion.removed += read.removed
        portion.later += read.left_out
        portion.unreadable += read.unreadable
        locked = RecordSet(ranges).minus(read.removed).ranges
        decoded = decode_batches(read.batches, locked, DecodeBudget(READ_DECODED_BYTES_MAX))
        portion.removed += decoded.removed
        portion.skipped += decoded.undecodable
        portion.later += decoded.left_out
        for record in decoded.records:
            self._place(portion, record)
        return portion

    def _place(self, portion: _Portion, record: Record) -> None:
        """Add the record to the portion, or to what is skipped, or to what comes later."""
        place = (record.offset, record.offset + 1)
        target = self._target(record)
        if target is None:
            portion.skipped.append(place)
            return
        headers = own_headers(record.headers)
        size = record_bytes_max(record.key, record.value, headers)
        if portion.moved and size > portion.bytes_left:
            portion.later.append(place)
            return
        letter = NewRecord(max(record.timestamp, 0), record.key, record.value, headers)
        if not portion.moved and encoded([letter]) is None:
            portion.skipped.append(place)
            return
        topic, key = target
        portion.bytes_left -= size
        portion.moved.append(place)
        portion.topics[key] = topic
        portion.by_target.setdefault(key, []).append(letter)

    def _target(self, record: Record) -> tuple[Topic, PartitionKey] | None:
        """The topic and partition that the record goes to, None if it is skipped."""
        told = {
            name.removeprefix(HEADER_PREFIX): value.decode(errors="replace")
            for name, value in record.headers
            if name.startswith(HEADER_PREFIX) and value is not None
        }
        is_wanted = self._wish.wanted is None or matches(self._wish.wanted, record.headers)
        if not is_wanted or told.get("reason") == UNDECODABLE:
            return None
        name = told.get("topic") if self._wish.to is None else self._wish.to
        # A producer of the dead-letter topic can write any topic's name into the header.
        if name is None or not self._access.may(Operation.WRITE, Kind.TOPIC, name):
            return None
        topic = _found(self._instance, name)
        if topic is None or topic.topic_id == self._topic.topic_id:
            return None
        number = _number(told.get("partition", ""))
        return topic, place_of(topic, record.key, number, by_key=keeps_keys(topic))


def _number(text: str) -> int:
    """The partition that a header tells, 0 if it tells none."""
    return int(text) if len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit() else 0


def _found(instance: Instance, name: str) -> Topic | None:
    """The topic; None also for a header that names none."""
    try:
        is_own = not name.startswith(RESERVED_PREFIX)  # the record's own header may name any topic
        return instance.topic_cache.find(name) if is_own else None
    except PenstockError as error:
        if error.code is not ErrorCode.INVALID_NAME:
            raise
        return None


def _acknowledgements(found: Sequence[Grant], portion: _Portion) -> Iterator[Acknowledgement]:
    accepted = normalized((*portion.moved, *portion.removed))
    for grant in found:
        for ranges, kind, delay_ms in (
            (accepted, AckType.ACCEPT, None),
            (normalized(portion.skipped), AckType.RELEASE, REDRIVE_PAUSE_MS),
            (normalized(portion.later), AckType.RELEASE, 0),
            (normalized(portion.unreadable), AckType.RELEASE, SHARE_UNREAD_PAUSE_MS),
        ):
            mine = grant.records.only(ranges).ranges
            if mine:
                yield Acknowledgement(
                    lock_id=grant.lock_id,
                    type=kind,
                    offsets=mine,
                    delay_ms=delay_ms,
                    is_uncounted=kind is AckType.RELEASE,
                    generation=grant.generation,
                    handed_out=grant.lock,
                )
