"""The plan of an acquire without order by key and without a filter: fresh records, and records that came back.

Fresh records need no look at other entries: one update moves the position and adds a lock, wherever the position is
then. Records that come again are taken from their entries as they were read.

An expired lock is a **suspect**: one of its records may have killed its worker. An acquire takes one part of at most
one suspect, so its records do not share one fate for ever. On the last delivery before the dead-letter topic, that part
is one record, and the acquire hands out nothing else of the partition. So a record that kills its workers takes no
other one along to the dead-letter topic.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import (
    SHARE_ITEM_BYTES,
    SHARE_LOCKS_MAX,
    SHARE_SUSPECT_PARTS,
    SHARE_WAITS_BYTES,
)
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acknowledge import AckAnswer, Acknowledgement, acknowledge
from penstock_core.share.draft import Draft
from penstock_core.share.merge_waits import merge_waits
from penstock_core.share.record_set import RecordSet, normalized
from penstock_core.share.retry import available_ms, is_last_delivery
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait, lock_id, locks_of
from penstock_core.share.share_update import ShareUpdate

_ENTRIES_PER_RETRY = 3  # an entry that is taken, the rest of it, and the new lock
_ENTRIES_OF_FRESH = 2  # its lock, and with order by key the wait of those that stay behind
_WAITS_BESIDE_FRESH = 2  # that one acquire takes: one that takes all meets every other acquire

E = TypeVar("E", bound=tuple[object, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireRequest:
    """A wish for records. The same `nonce` again is the same wish."""

    nonce: LockNonce
    records_max: int
    lock_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The records that a partition has, as a read of its head showed them."""

    log_start: Offset
    next_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquirePlan:
    """The update, None if there is nothing to hand out, and the answers of its acknowledgements once it is applied.

    - `planned` acknowledgements are in the update, the first ones. Plan the rest on the state after it.
    - `is_repeat`: the state has locks of this nonce, so nothing more is handed out.
    - `is_blocked`: there are fresh records, and no room for them in flight.
    - `is_alone`: the acquire has a suspect on its last delivery. Hand out nothing else in the same call.
    """

    update: ShareUpdate | None
    answers: Sequence[AckAnswer] = ()
    planned: int = 0
    is_repeat: bool = False
    is_blocked: bool = False
    is_alone: bool = False


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
    merge_waits(draft, config, murmur2(request.nonce.encode()))
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


def next_available_ms(state: ShareState, config: ShareGroupConfig, now_ms: int) -> int | None:
    """The time until the first record comes back by itself; 0 if one has; None if no record is in flight.

    With order by key, a record behind an unfinished one of its key does not count.
    """
    entries = [(wait.available_ms, wait.records) for wait in state.waits.values()]
    entries += [(available_ms(config, name, lock), lock.held) for name, lock in state.locks.items()]
    first: dict[int, int] = {}
    for _, records in entries:
        for offset, key_hash in records.hash_by_offset().items():
            first[key_hash] = min(offset, first.get(key_hash, offset))
    times = [time_ms for time_ms, records in entries if _leads(records, first)]
    return max(0, min(times) - now_ms) if times else None


def _leads(records: RecordSet, first: Mapping[int, int]) -> bool:
    """True if one of the records is the first unfinished one of its key, or has no order."""
    if not records.hashes:
        return True
    return any(not key_hash or first[key_hash] == offset for offset, key_hash in records.hash_by_offset().items())


def fresh_room(draft: Draft, config: ShareGroupConfig) -> int:
    """How many more records the share item may have in flight, if it has a place for a lock."""
    has_place = (
        draft.room() >= _ENTRIES_OF_FRESH
        and len(draft.locks) < SHARE_LOCKS_MAX
        and entries_bytes(draft.locks, draft.waits) < SHARE_ITEM_BYTES
        and entries_bytes({}, draft.waits) < SHARE_WAITS_BYTES
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
        self._has_suspect = False
        self.is_alone = False

    def retries(self) -> None:
        """Take records that came back: half of the acquire at most while there are fresh ones."""
        budget = self._left if not self._fresh_count() else max(1, self._left // 2)
        if self._turn % 2:
            budget -= self._suspect_part(budget)
        if self.is_alone:
            return
        waits = self._in_turn(self._available_waits())
        for first, wait in islice(waits, _WAITS_BESIDE_FRESH if self._fresh_count() else None):
            if not self._has_room(budget):
                break
            budget -= self._take_wait(first, wait, budget)
        if not self._has_suspect:
            self._suspect_part(budget)

    def fresh(self) -> bool:
        """Take fresh records. True if there are some, and no room for them."""
        wanted = min(self._fresh_count(), self._left)
        count = min(wanted, fresh_room(self._draft, self._config))
        if count > 0:
            lock = self._new_lock(Offset(0), 1, RecordSet(((0, count),)))
            self._draft.hand_out_fresh(self._next_id(), lock, self._log.log_start, self._log.next_offset)
            self._draft.bound(SHARE_LOCKS_MAX, self._config.in_flight_max)
        return wanted > 0 and count <= 0

    def fresh_of(self, window: Sequence[int | None]) -> bool:
        """Take fresh records that were read, and pass over those that are None. True as `fresh`.

        The window begins at the position, or at the log start if that is above.
        """
        first = max(self._draft.position, self._log.log_start)
        matching = [first + index for index, found in enumerate(window) if found is not None]
        count = max(0, min(self._left, fresh_room(self._draft, self._config)))
        taken = matching[:count]
        end = first + len(window) if len(taken) == len(matching) else matching[count]
        self._lock(RecordSet(normalized((offset, offset + 1) for offset in taken)), 0)
        if window and end > first:
            self._draft.pass_over(end - self._draft.position)
        return bool(matching) and not taken

    def _fresh_count(self) -> int:
        return max(0, self._log.next_offset - max(self._draft.position, self._log.log_start))

    def _available_waits(self) -> list[tuple[Offset, Wait]]:
        now_ms = self._request.now_ms
        waits = self._draft.waits.items()
        return [(first, wait) for first, wait in waits if wait.available_ms <= now_ms and self._comes_again(wait)]

    def _comes_again(self, wait: Wait) -> bool:
        """True unless the records go to the dead-letter topic. Without such a topic, rejected ones are finished."""
        if wait.is_rejected:
            return self._config.dead_letter_topic is None
        return not is_last_delivery(self._config, wait.deliveries)

    def _suspects(self) -> list[tuple[LockId, Lock]]:
        now_ms = self._request.now_ms
        return [
            (name, lock)
            for name, lock in self._draft.locks.items()
            if not is_last_delivery(self._config, lock.deliveries) and available_ms(self._config, name, lock) <= now_ms
        ]

    def _in_turn(self, entries: list[E]) -> Iterator[E]:
        """The entries from a place on that the nonce tells, so that acquires at the same time meet different ones."""
        entries.sort(key=lambda entry: str(entry[0]))
        turn = self._turn % (len(entries) or 1)
        yield from entries[turn:]
        yield from entries[:turn]

    def _has_room(self, budget: int) -> bool:
        return budget > 0 and self._draft.room() >= _ENTRIES_PER_RETRY + _ENTRIES_OF_FRESH

    def _suspect_part(self, budget: int) -> int:
        """Take a part of one suspect, and drop those that have expired from the log. The number of records."""
        for name, lock in self._in_turn(self._suspects()):
            if not self._has_room(budget):
                return 0
            if count := self._take_suspect(name, lock, budget):
                return count
        return 0

    def _take_wait(self, first: Offset, wait: Wait, budget: int) -> int:
        live = wait.records.minus(((0, self._log.log_start),))
        taken = live.first(0 if wait.is_rejected else budget)
        left = live.minus(taken.ranges)
        self._draft.remove_wait(first)
        if left.ranges and not wait.is_rejected:
            self._draft.put_wait(replace(wait, records=left))
        self._lock(taken, wait.deliveries)
        return taken.count

    def _take_suspect(self, name: LockId, lock: Lock, budget: int) -> int:
        live = lock.held.minus(((0, self._log.log_start),))
        is_last = is_last_delivery(self._config, lock.deliveries + 1)
        if is_last and self._locks and live.ranges:
            return 0  # another acquire takes it, alone
        part = 1 if is_last else max(1, live.count // SHARE_SUSPECT_PARTS)
        if len(self._draft.locks) >= 2 * SHARE_LOCKS_MAX and not is_last:
            part = live.count  # so that the item stays bounded
        taken = live.first(min(part, budget))
        self._draft.put_lock(name, replace(lock, records=live.minus(taken.ranges).shifted(-lock.base)))
        self._lock(taken, lock.deliveries)
        self._has_suspect = bool(taken.ranges)
        self.is_alone = is_last and bool(taken.ranges)
        return taken.count

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
