"""The locks that a consumer holds, and the records under them.

    acquired -> at hand -> in hand -> acknowledged -> answered
                  |           |
               given back   lost (the lock ended, or another consumer has it)

Invariants:

- A record that is not in hand is handed out only while its lock has not ended by either clock.
- A lock is renewed while a record under it is in hand, from the middle of its time on, `hold_ms_max` at most. Records
  that are still at hand go back: the consumer needs half of its lock's time for the records before them.
- In a group that is ordered by key, a lock may hold several records of a key. They are handed to handlers one after the
  other. The service releases those behind a record that is released, so they are handed out no more.
- The entry in the service decides whether a lock holds, not a clock. So what was acknowledged is sent, however late.

A time as a consumer reads it: on the monotonic clock and on the wall clock.

A frozen machine may stop one of them, and an operator may set the other. A lock has ended for its consumer as soon as
either clock says so.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from penstock.model.share import ShareRecord
from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import LockKey


class Moment(NamedTuple):
    """Both clocks at one time, in milliseconds."""

    monotonic_ms: int
    wall_ms: int

    def later(self, by_ms: int) -> Self:
        """The moment `by_ms` after this one."""
        return self._replace(monotonic_ms=self.monotonic_ms + by_ms, wall_ms=self.wall_ms + by_ms)

    def has_come(self, now: "Moment") -> bool:
        """One of the clocks has reached this moment."""
        return now.monotonic_ms >= self.monotonic_ms or now.wall_ms >= self.wall_ms


Clocks = Callable[[], Moment]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiredLock:
    """A lock as an acquire's answer tells it: its records in offset order, and how long it lasts from `sent` on.

    `unreadable` are offsets under it whose records the consumer cannot decode, `missing` those without a record. The
    consumer has no memory for those of `left_out` on top of the others: they go back. It may not decrypt those of
    `locked_up`.
    """

    key: LockKey
    records: Sequence[ShareRecord]
    missing: Sequence[int] = ()
    unreadable: Sequence[int] = ()
    why_unreadable: str = ""
    left_out: Sequence[int] = ()
    locked_up: Sequence[int] = ()
    sent: Moment
    lasts_ms: int


class HeldLock:
    """A lock and its records. `count` is how many records it was made for, `told` those that were said to be lost.

    `lock_id` tells the service the lock as its last acknowledgement left it, so that the next one costs one write.
    """

    __slots__ = (
        "at_hand",
        "count",
        "ends",
        "has_ended",
        "in_hand",
        "is_renewing",
        "key",
        "lock_id",
        "renew_from",
        "since",
        "told",
        "unsent",
    )

    def __init__(self, lock: AcquiredLock) -> None:
        self.key = lock.key
        self.lock_id = lock.key.lock_id
        self.since = lock.sent
        self.at_hand = {record.offset: record for record in lock.records}
        self.in_hand: dict[int, ShareRecord] = {}
        self.unsent: dict[int, ShareRecord] = {}  # acknowledged, but the service has not answered
        self.count = len(lock.records) + len(lock.missing) + len(lock.unreadable)
        self.count += len(lock.left_out) + len(lock.locked_up)
        self.has_ended = False  # by a clock of this machine
        self.told: set[int] = set()
        self.is_renewing = False
        self.renew(lock.sent, lock.lasts_ms)

    def renew(self, sent: Moment, lasts_ms: int) -> None:
        """It lasts for `lasts_ms` from `sent` on."""
        self.ends = sent.later(lasts_ms)
        self.renew_from = sent.later(lasts_ms // 2)
        self.is_renewing = False
        self.has_ended = False

    @property
    def is_over(self) -> bool:
        """No record is left under it."""
        return not (self.at_hand or self.in_hand or self.unsent)


class HeldLocks:
    """All locks of one consumer. `at_hand` counts the records that may be handed out."""

    def __init__(self, hold_ms_max: int) -> None:
        self._hold_ms_max = hold_ms_max
        self._locks: dict[LockKey, HeldLock] = {}
        self._queue: deque[ShareRecord] = deque()
        self.at_hand = 0
        self.is_by_key = False  # the group is ordered by key

    def __iter__(self) -> Iterator[HeldLock]:
        return iter(list(self._locks.values()))

    def get(self, key: LockKey) -> HeldLock | None:
        """The lock, if it is held."""
        return self._locks.get(key)

    def lock_id_of(self, key: LockKey) -> str:
        """The lock id to send: the newest that the service has told."""
        held = self._locks.get(key)
        return key.lock_id if held is None else held.lock_id

    def rename(self, key: LockKey, lock_id: str) -> None:
        """The service has told a newer lock id."""
        held = self._locks.get(key)
        if held is not None:
            held.lock_id = lock_id

    def add(self, lock: AcquiredLock) -> None:
        """Take a lock. If it is held already, it lasts longer: the service has repeated its answer."""
        held = self._locks.get(lock.key)
        if held is not None:
            held.renew(lock.sent, lock.lasts_ms)
            return
        self._locks[lock.key] = HeldLock(lock)
        self._queue.extend(lock.records)
        self.at_hand += len(lock.records)

    def take(self, most: int, now: Moment, *, is_one_per_key: bool = False) -> list[ShareRecord]:
        """Hand out up to `most` records, the oldest first; with order by key, if wanted, one of each key at a time."""
        taken: list[ShareRecord] = []
        busy = self._keys_in_hand() if self.is_by_key and is_one_per_key else None
        left: list[ShareRecord] = []
        while self._queue and len(taken) < most:
            record = self._queue.popleft()
            lock = self._locks.get(key_of(record))
            if lock is None or record.offset not in lock.at_hand or lock.ends.has_come(now):
                continue
            if busy is not None and record.key is not None:
                if _ordered_by(record) in busy:
                    left.append(record)
                    continue
                busy.add(_ordered_by(record))
            lock.in_hand[record.offset] = lock.at_hand.pop(record.offset)
            self.at_hand -= 1
            taken.append(record)
        self._queue.extendleft(reversed(left))
        return taken

    @property
    def ready(self) -> int:
        """The records at hand that do not wait for another one of their key."""
        if not self.is_by_key:
            return self.at_hand
        busy = self._keys_in_hand()
        at_hand = (record for lock in self._locks.values() for record in lock.at_hand.values())
        return sum(record.key is None or _ordered_by(record) not in busy for record in at_hand)

    def drop_behind(self, record: ShareRecord) -> None:
        """The record is released: with order by key, the service releases those behind it under the same lock."""
        lock = self._locks.get(key_of(record))
        if not self.is_by_key or lock is None or record.key is None:
            return
        for offset, each in list(lock.at_hand.items()):
            if each.key == record.key and offset > record.offset:
                del lock.at_hand[offset]
                self.at_hand -= 1

    def put_aside(self, record: ShareRecord) -> HeldLock | None:
        """The application is done with a record. Its lock, or None if the record is not in hand."""
        lock = self._locks.get(key_of(record))
        if lock is None or record.offset not in lock.in_hand:
            return None
        lock.unsent[record.offset] = lock.in_hand.pop(record.offset)
        return lock

    def give_back(self, lock: HeldLock) -> list[int]:
        """The offsets at hand, which are handed out no more."""
        offsets = list(lock.at_hand)
        lock.unsent.update(lock.at_hand)
        self.at_hand -= len(lock.at_hand)
        lock.at_hand.clear()
        return offsets

    def answered(self, key: LockKey, offsets: Iterable[int]) -> None:
        """The service has acknowledged these."""
        lock = self._locks.get(key)
        if lock is not None:
            for offset in offsets:
                lock.unsent.pop(offset, None)
            self._drop_if_over(lock)

    def lose(self, lock: HeldLock, offsets: Iterable[int]) -> list[ShareRecord]:
        """These are another consumer's, or finished. Returns those that were in hand or acknowledged."""
        lost: list[ShareRecord] = []
        for offset in offsets:
            if lock.at_hand.pop(offset, None) is not None:
                self.at_hand -= 1
            record = lock.in_hand.pop(offset, None) or lock.unsent.pop(offset, None)
            if record is not None and offset not in lock.told:
                lost.append(record)
        self._drop_if_over(lock)
        return lost

    def in_hand(self) -> list[ShareRecord]:
        """All records that were handed out and not acknowledged."""
        return [record for lock in self._locks.values() for record in lock.in_hand.values()]

    def is_in_hand(self, record: ShareRecord) -> bool:
        """The record was handed out, and neither acknowledged nor lost."""
        lock = self._locks.get(key_of(record))
        return lock is not None and record.offset in lock.in_hand

    def may_renew(self, lock: HeldLock, now: Moment) -> bool:
        """A record of it is in hand, and it was not renewed for too long."""
        return bool(lock.in_hand) and not lock.since.later(self._hold_ms_max).has_come(now)

    def due_ms(self) -> int:
        """The next time at which a lock must be renewed, or ends, by the monotonic clock."""
        due = [lock.ends.monotonic_ms for lock in self._locks.values() if not lock.has_ended]
        due += [
            lock.renew_from.monotonic_ms
            for lock in self._locks.values()
            if not lock.is_renewing and (lock.in_hand or lock.at_hand)
        ]
        return min(due, default=NEVER_MS)

    def _keys_in_hand(self) -> set[tuple[str, int, bytes | str | None]]:
        return {_ordered_by(record) for record in self.in_hand()}

    def _drop_if_over(self, lock: HeldLock) -> None:
        if lock.is_over:
            self._locks.pop(lock.key, None)


def key_of(record: ShareRecord) -> LockKey:
    """The lock that a record was handed out under."""
    return LockKey(record.topic, record.partition, record.lock_id)


def _ordered_by(record: ShareRecord) -> tuple[str, int, bytes | str | None]:
    is_hashable = record.key is None or isinstance(record.key, bytes)  # a deserialized key may not be
    return record.topic, record.partition, record.key if is_hashable else repr(record.key)
