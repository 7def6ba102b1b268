"""The plan of an acquire without order by key and without a filter: fresh records, and records that came back.

Fresh records need no look at other entries: one update moves the position and adds a lock, wherever the position is
then. Records that come again are taken from their entries as they were read.

An expired lock is a **suspect**: one of its records may have killed its worker. The first acquire that takes it splits
it into 8 parts: one for itself, and waits that stay suspects. Later acquires take one part each. An acquire that takes
a part takes nothing else, and before the dead-letter topic the part is one record. So a record that kills its workers
takes no other one along.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import (
    SHARE_ITEM_BYTES,
    SHARE_LOCKS_ALL_MAX,
    SHARE_LOCKS_MAX,
    SHARE_SUSPECT_PARTS,
    SHARE_WAITS_MAX,
)
from penstock_core.log.index import Head, Jump, count_between, past
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acknowledge import AckAnswer, Acknowledgement, acknowledge
from penstock_core.share.draft import Draft, ShareUpdate
from penstock_core.share.record_set import EMPTY, RecordSet, normalized
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_group import TOPICS_LISTED, ShareGroupConfig
from penstock_core.share.share_state import NOTHING_HELD, HeldBack, Lock, ShareState, Wait, lock_id, locks_of
from penstock_core.share.waits import available_ms, is_last_delivery, merge_waits, tends

_ENTRIES_PER_RETRY = 3  # an entry that is taken, the rest of it, and the new lock
_ENTRIES_OF_SUSPECT = SHARE_SUSPECT_PARTS + 3  # the old lock, the new one, and the waits of the other parts
_ENTRIES_OF_FRESH = 2  # its lock, and with order by key the wait of those that stay behind
_WAITS_BESIDE_FRESH = 8  # that one acquire takes: one that takes all meets every other acquire

E = TypeVar("E", bound=tuple[object, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireRequest:
    """A wish for records. The same `nonce` again is the same wish. `is_repeat`: the client has sent it before."""

    nonce: LockNonce
    records_max: int
    lock_ms: int
    now_ms: int
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The records that a partition has, as a read of its head showed them."""

    log_start: Offset
    next_offset: Offset
    jumps: tuple[Jump, ...] = ()

    @classmethod
    def of(cls, head: Head) -> "LogBounds":
        """Those of the head."""
        return cls(log_start=head.log_start_offset, next_offset=head.next_offset, jumps=head.jumps)

    def first_fresh(self, position: int) -> Offset:
        """The first record from the position on that is still there. Neither retention nor a restore has taken it."""
        return past(self.jumps, max(position, self.log_start))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquirePlan:
    """The update, None if there is nothing to hand out, and the answers of its acknowledgements once it is applied.

    - `planned` acknowledgements are in the update, the first ones. Plan the rest on the state after it.
    - `is_repeat`: the state has locks of this nonce, so nothing more is handed out.
    - `is_blocked`: there are fresh records, and no room for them in flight.
    - `is_alone`: the acquire has a part of a suspect. Hand out nothing else in the same call.
    - `passed_over` fresh records give way to those of other tenants.
    """

    update: ShareUpdate | None
    answers: Sequence[AckAnswer] = ()
    planned: int = 0
    is_repeat: bool = False
    is_blocked: bool = False
    is_alone: bool = False
    passed_over: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A lock that an acquire has, with its records' offsets."""

    lock_id: LockId
    lock: Lock
    generation: int

    @property
    def records(self) -> RecordSet:
        """The records, by their offsets in the partition."""
        return self.lock.held


def plan_acquire(
    state: ShareState,
    config: ShareGroupConfig,
    log: LogBounds,
    request: AcquireRequest,
    acknowledgements: Sequence[Acknowledgement] = (),
) -> AcquirePlan:
    """The acknowledgements, and then the acquire, on the state as it was read. One update does both."""
    draft = Draft(state)
    answers, planned = acknowledge(draft, config, acknowledgements, request.now_ms)
    if locks_of(state, request.nonce):
        return AcquirePlan(update=draft.update(), answers=answers, planned=planned, is_repeat=True)
    hand_out = HandOut(draft, config, log, request)
    hand_out.retries()
    is_blocked = not hand_out.is_alone and hand_out.fresh()
    if config.topic_order == TOPICS_LISTED and not hand_out.is_alone:
        hand_out.rest()
    if hand_out.is_tending:
        merge_waits(draft, config, request.now_ms)
    return AcquirePlan(
        update=draft.update(),
        answers=answers,
        planned=planned,
        is_blocked=is_blocked,
        is_alone=hand_out.is_alone,
    )


def grants(state: ShareState, nonce: LockNonce) -> list[Grant]:
    """The locks of the acquire with this nonce: after its update, or as an earlier try has left them."""
    return [
        Grant(lock_id=name, lock=lock, generation=state.generation) for name, lock in locks_of(state, nonce).items()
    ]


def has_available(state: ShareState, config: ShareGroupConfig, now_ms: int, held: HeldBack = NOTHING_HELD) -> bool:
    """True if an acquire could take records that came back, but for those on their way to the dead-letter topic."""
    is_buried = config.dead_letter_topic is not None
    live = replace(
        state,
        locks={name: lock for name, lock in state.locks.items() if not is_last_delivery(config, lock.deliveries)},
        waits={first: wait for first, wait in state.waits.items() if not (is_buried and wait.is_terminal)},
    )
    return next_available_ms(live, config, now_ms, held) == 0


def next_available_ms(
    state: ShareState, config: ShareGroupConfig, now_ms: int, held: HeldBack = NOTHING_HELD
) -> int | None:
    """The time until the first record comes back by itself; 0 if one has; None if no record is in flight.

    With order by key, a record behind an unfinished one of its key does not count, in this partition or in one of the
    older ones that `held` tells of.
    """
    if held.is_all:
        return None
    entries = [(wait.available_ms, wait.records) for wait in state.waits.values()]
    entries += [(available_ms(config, name, lock), lock.held) for name, lock in state.locks.items()]
    first: dict[int, int] = dict.fromkeys(held.keys, -1)
    dead = {wait.records.start for wait in state.waits.values() if wait.is_terminal}
    for records in (records for _, records in entries if records.start not in dead):
        for offset, key_hash in records.hash_by_offset().items():
            first[key_hash] = min(offset, first.get(key_hash, offset))
    times = [time_ms for time_ms, records in entries if _leads(records, first)]
    return max(0, min(times) - now_ms) if times else None


def _leads(records: RecordSet, first: Mapping[int, int]) -> bool:
    """True if one of the records is the first unfinished one of its key, or has no order."""
    if not records.hashes:
        return True
    return any(
        not key_hash or first.get(key_hash, offset) == offset for offset, key_hash in records.hash_by_offset().items()
    )


def fresh_room(draft: Draft, config: ShareGroupConfig) -> int:
    """How many more records the share item may have in flight, if it has a place for a lock."""
    has_place = (
        draft.room() >= _ENTRIES_OF_FRESH
        and len(draft.locks) < SHARE_LOCKS_MAX
        and entries_bytes(draft.locks, draft.waits) < SHARE_ITEM_BYTES
    )
    return max(0, config.in_flight_max - draft.open) if has_place else 0


class HandOut:
    """The records that one acquire takes, on a draft."""

    def __init__(self, draft: Draft, config: ShareGroupConfig, log: LogBounds, request: AcquireRequest) -> None:
        self._draft = draft
        self._config = config
        self._log = log
        self._request = request
        self._turn = murmur2(request.nonce.encode())
        self._left = request.records_max
        self._locks = 0
        self.is_alone = False
        self.is_tending = False

    def retries(self) -> None:
        """Take records that came back, if it is this acquire's turn: half of it at most while there are fresh ones."""
        has_fresh = self._fresh_count() > 0 and fresh_room(self._draft, self._config) > 0
        self.is_tending = not has_fresh or tends(self._request.nonce, self._overdue_ms())
        if not self.is_tending:
            return
        drop_expired(self._draft, self._config, self._log, self._request.now_ms)
        waits = self._in_turn(self._available_waits())
        if self._turn % 2 or not (waits or self._fresh_count()):
            self._suspect_part(suspects(self._draft, self._config, self._request.now_ms))
        if self.is_alone:
            return
        budget, count = self._left, None
        if self._fresh_count():
            budget, count = (self._turn >> 1) % 2 if self._left == 1 else self._left // 2, _WAITS_BESIDE_FRESH
        self._take_waits(waits[:count], budget)

    def rest(self) -> None:
        """With listed topics: take all that came back for the room that is left. Later topics get no room before."""
        if self._left > 0:
            self.is_tending = True
            self._take_waits(self._in_turn(self._available_waits()), self._left)

    def _take_waits(self, waits: Sequence[tuple[Offset, Wait]], budget: int) -> None:
        by_count: dict[int, RecordSet] = {}
        for first, wait in waits:
            if len(self._draft.locks) + len(by_count) >= SHARE_LOCKS_ALL_MAX:
                break
            if budget <= 0 or self._draft.room() < _ENTRIES_PER_RETRY * (1 + len(by_count)) + _ENTRIES_OF_FRESH:
                break
            taken = self._take_wait(first, wait, budget)
            budget -= taken.count
            by_count[wait.deliveries] = by_count.get(wait.deliveries, EMPTY).plus(taken)
        for deliveries, records in sorted(by_count.items()):
            self._lock(records, deliveries)

    def fresh(self) -> bool:
        """Take fresh records. True if there are some, and no room for them."""
        wanted = min(self._fresh_count(), self._left)
        count = min(wanted, fresh_room(self._draft, self._config))
        if count > 0:
            lock = self._new_lock(Offset(0), 1, RecordSet(((0, count),)))
            first = self._log.first_fresh(self._draft.position)
            start = first if first > self._draft.position else self._log.log_start
            self._draft.hand_out_fresh(self._next_id(), lock, start, self._log.next_offset)
            self._draft.bound(SHARE_LOCKS_MAX, self._config.in_flight_max)
        return wanted > 0 and count <= 0

    def fresh_of(self, window: Sequence[int | None]) -> bool:
        """Take fresh records that were read, and pass over those that are None. True as `fresh`.

        The window begins at the first fresh record.
        """
        first = self._log.first_fresh(self._draft.position)
        matching = [first + index for index, found in enumerate(window) if found is not None]
        count = max(0, min(self._left, fresh_room(self._draft, self._config)))
        taken = matching[:count]
        end = first + len(window) if len(taken) == len(matching) else matching[count]
        self._lock(RecordSet(normalized((offset, offset + 1) for offset in taken)), 0)
        if window and end > first:
            self._draft.pass_over(end - self._draft.position)
        return bool(matching) and not taken

    def _fresh_count(self) -> int:
        first = self._log.first_fresh(self._draft.position)
        return count_between(self._log.jumps, first, self._log.next_offset)

    def _overdue_ms(self) -> int:
        """The time for which the longest record has been due."""
        now_ms = self._request.now_ms
        due = [wait.available_ms for _, wait in self._available_waits()]
        for name, entry in suspects(self._draft, self._config, now_ms):
            if isinstance(entry, Wait):
                due.append(entry.available_ms)
            elif name is not None:
                due.append(available_ms(self._config, name, entry))
        return now_ms - min(due, default=now_ms)

    def _available_waits(self) -> list[tuple[Offset, Wait]]:
        now_ms = self._request.now_ms
        waits = self._draft.waits.items()
        return [(first, wait) for first, wait in waits if wait.available_ms <= now_ms and self._comes_again(wait)]

    def _comes_again(self, wait: Wait) -> bool:
        """True for what is handed out as it is: no suspect, and nothing that goes to the dead-letter topic.

        Without such a topic, rejected records end with the update that meets them.
        """
        return not wait.is_suspect and (not wait.is_terminal or self._config.dead_letter_topic is None)

    def _in_turn(self, entries: list[E]) -> list[E]:
        """The entries from a place on that the nonce tells, so that acquires at the same time meet different ones."""
        turn = self._turn % (len(entries) or 1)
        return entries[turn:] + entries[:turn]

    def _suspect_part(self, found: list[tuple[LockId | None, Lock | Wait]]) -> None:
        """Take a part of one of these suspects, and nothing else."""
        for name, entry in self._in_turn(found):
            if self._draft.room() < _ENTRIES_OF_SUSPECT:
                return
            if name is None and len(self._draft.locks) >= SHARE_LOCKS_ALL_MAX:
                continue  # a lock that is taken makes room for its part
            records = entry.held if isinstance(entry, Lock) else entry.records
            live = records.minus(((0, self._log.log_start),))
            part = suspect_part(self._config, name, live, entry.deliveries).first(self._left)
            remove_suspect(self._draft, name, entry)
            put_suspects(self._draft, name, entry, live.minus(part.ranges), self._request.now_ms)
            if part.ranges:
                self._lock(part, entry.deliveries)
                self.is_alone = True
                return

    def _take_wait(self, first: Offset, wait: Wait, budget: int) -> RecordSet:
        live = wait.records.minus(((0, self._log.log_start),))
        taken = live.first(0 if wait.is_rejected else budget)
        left = live.minus(taken.ranges)
        self._draft.remove_wait(first)
        if left.ranges and not wait.is_rejected:
            self._draft.put_wait(replace(wait, records=left))
        return taken

    def _lock(self, records: RecordSet, deliveries: int) -> None:
        """Lock records that were handed out so often before."""
        if not records.ranges:
            return
        base = Offset(records.start)
        self._draft.put_lock(self._next_id(), self._new_lock(base, deliveries + 1, records.shifted(-base)))
        self._left -= records.count

    def _new_lock(self, base: Offset, deliveries: int, records: RecordSet) -> Lock:
        return Lock(base, self._request.now_ms + self._request.lock_ms, deliveries, records)

    def _next_id(self) -> LockId:
        self._locks += 1
        return lock_id(self._request.nonce, self._locks - 1)


def suspects(draft: Draft, config: ShareGroupConfig, now_ms: int) -> list[tuple[LockId | None, Lock | Wait]]:
    """The entries whose worker may have died of them, with the ids of those that are locks."""
    found: list[tuple[LockId | None, Lock | Wait]] = [
        (name, lock)
        for name, lock in sorted(draft.locks.items(), key=_name_of)
        if not is_last_delivery(config, lock.deliveries) and available_ms(config, name, lock) <= now_ms
    ]
    for _, wait in sorted(draft.waits.items(), key=_name_of):
        if wait.is_suspect and wait.available_ms <= now_ms and not wait.is_terminal:
            found.append((None, wait))
    return found


def drop_expired(draft: Draft, config: ShareGroupConfig, log: LogBounds, now_ms: int) -> None:
    """Finish suspects whose records lie below the log start, while the draft has room."""
    for name, entry in suspects(draft, config, now_ms):
        records = entry.held if isinstance(entry, Lock) else entry.records
        if records.end <= log.log_start and draft.room() > _ENTRIES_OF_SUSPECT:
            remove_suspect(draft, name, entry)


def suspect_part(config: ShareGroupConfig, name: LockId | None, live: RecordSet, deliveries: int) -> RecordSet:
    """The part of a suspect that one acquire takes: an eighth of a lock, a whole part; one record at last."""
    if is_last_delivery(config, deliveries + 1):
        return live.first(1)
    return live if name is None else live.first(-(-live.count // SHARE_SUSPECT_PARTS))


def remove_suspect(draft: Draft, name: LockId | None, entry: Lock | Wait) -> None:
    """Take the suspect out of the draft."""
    if name is not None:
        draft.put_lock(name, None)
    else:
        draft.remove_wait(Offset(entry.records.start))


def put_suspects(draft: Draft, name: LockId | None, entry: Lock | Wait, left: RecordSet, now_ms: int) -> None:
    """Put what is left of a suspect back: a lock in parts that are available now, a part as it is.

    An item with many waits takes what is left of a lock as one part: its next acquire takes all of it.
    """
    is_full = len(draft.waits) + SHARE_SUSPECT_PARTS > SHARE_WAITS_MAX // 2
    size = left.count if name is None or is_full else -(-left.count // SHARE_SUSPECT_PARTS)
    since_ms = entry.available_ms if isinstance(entry, Wait) else now_ms
    while left.ranges:
        part = left.first(size)
        left = left.minus(part.ranges)
        draft.put_wait(Wait(since_ms, entry.deliveries, part, is_suspect=True))


def _name_of(entry: tuple[LockId | Offset, object]) -> str | int:
    return entry[0]
