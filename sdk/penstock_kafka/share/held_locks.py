"""The locks of one client: which of its records are still to be acknowledged, and under which lock of the service.

Kafka's clients name records by their offsets, and the service by its locks. So the gateway remembers for each record
that it has handed out the lock that it belongs to. Acknowledged records stay known until their lock would have ended,
so that a repeat of an acknowledgement gets the answer of the first. The newest `KAFKA_SHARE_RECORDS_MAX` are known.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model import TopicPartition
from penstock.share.acknowledgements import Acknowledgement, LockKey, Verb, Wish
from penstock_core.limits import KAFKA_SHARE_RECORDS_MAX
from penstock_kafka.errors import KafkaError, RequestRefused

_LATE_MS = 600_000  # a lock counts until another consumer takes its records, so it is known for longer than it lasts


class WishedRange(NamedTuple):
    """Offsets from `start` up to `end`, and what the client wishes for them."""

    start: int
    end: int
    wish: Wish


@dataclass(slots=True, kw_only=True, eq=False)
class HeldLock:
    """A lock as the service knows it now. `count` is how many records it was made for."""

    key: LockKey
    lock_id: str
    count: int
    ends_ms: int
    open: set[int]


class _Answered(NamedTuple):
    wish: Wish
    until_ms: int


_Locks = dict[int, HeldLock]  # of one partition by offset, those that are not acknowledged


class HeldLocks:
    """All locks of one client. Times are of one clock that never goes back."""

    def __init__(self, now_ms: int = 0) -> None:
        self._locks: dict[LockKey, HeldLock] = {}
        self._partitions: dict[TopicPartition, _Locks] = {}
        self._answered: OrderedDict[tuple[TopicPartition, int], _Answered] = OrderedDict()  # the oldest first
        self._looked_ms = now_ms
        self.count = 0  # of records

    def add(self, lock: HeldLock) -> None:
        """Take a lock that the service has granted. A record of an older lock belongs to this one now."""
        locks = self._partitions.setdefault(_place(lock.key), {})
        self._locks[lock.key] = lock
        for offset in lock.open:
            older = locks.get(offset)
            if older is None:
                self.count += 1
            else:
                older.open.discard(offset)
            locks[offset] = lock
        while self.count > KAFKA_SHARE_RECORDS_MAX and len(self._locks) > 1:
            self._drop(next(iter(self._locks)))

    def find(self, key: LockKey) -> HeldLock | None:
        """The lock, if it is known."""
        return self._locks.get(key)

    def entries(self, place: TopicPartition, ranges: Iterable[WishedRange]) -> list[Acknowledgement]:
        """The entries for the service. None for a range that was acknowledged so before.

        Raises RequestRefused with INVALID_RECORD_STATE if the client does not hold all records: then it sends none.
        """
        locks = self._partitions.get(place) or {}
        found: dict[tuple[LockKey, Wish], list[int]] = {}
        for each in ranges:
            held = _held(locks, each)
            if held is None:
                if not self._is_answered(place, each):
                    raise _not_held(place, each)
                continue
            for offset, lock in held:
                found.setdefault((lock.key, each.wish), []).append(offset)
        return [
            Acknowledgement(
                key=key,
                lock_id=self._locks[key].lock_id,
                wish=wish,
                offsets=tuple(offsets),
                is_whole=len(offsets) == self._locks[key].count,
            )
            for (key, wish), offsets in found.items()
        ]

    def all_entries(self, wish: Wish) -> list[Acknowledgement]:
        """One entry for each lock, for all that is left of it."""
        return [
            Acknowledgement(
                key=lock.key,
                lock_id=lock.lock_id,
                wish=wish,
                offsets=tuple(sorted(lock.open)),
                is_whole=len(lock.open) == lock.count,
            )
            for lock in self._locks.values()
            if lock.open
        ]

    def acknowledged(self, entry: Acknowledgement, offsets: Sequence[int]) -> None:
        """The service has taken the entry for these offsets."""
        lock = self._locks.get(entry.key)
        if lock is None or entry.wish.verb is Verb.RENEW or not offsets:
            return
        place = _place(entry.key)
        for offset in offsets:
            self._answered[place, offset] = _Answered(entry.wish, lock.ends_ms)
            self._answered.move_to_end((place, offset))
        while len(self._answered) > KAFKA_SHARE_RECORDS_MAX:
            self._answered.popitem(last=False)
        self.lost(entry.key, offsets)

    def lost(self, key: LockKey, offsets: Iterable[int]) -> None:
        """The client holds these no more."""
        lock, locks = self._locks.get(key), self._partitions.get(_place(key))
        if lock is None or locks is None:
            return
        for offset in offsets:
            if offset in lock.open:
                lock.open.discard(offset)
                del locks[offset]
                self.count -= 1
        if not lock.open:
            del self._locks[key]
        if not locks:
            del self._partitions[_place(key)]

    def rename(self, key: LockKey, lock_id: str) -> None:
        """The service has told a newer lock id."""
        lock = self._locks.get(key)
        if lock is not None:
            lock.lock_id = lock_id

    def renew(self, key: LockKey, ends_ms: int) -> None:
        """The lock lasts until then."""
        lock = self._locks.get(key)
        if lock is not None:
            lock.ends_ms = ends_ms

    def look(self, now_ms: int) -> None:
        """Forget what can no longer be acknowledged."""
        if now_ms - self._looked_ms < 1_000:
            return
        self._looked_ms = now_ms
        for key in [each.key for each in self._locks.values() if now_ms > each.ends_ms + _LATE_MS]:
            self._drop(key)
        for place in [each for each, answered in self._answered.items() if now_ms > answered.until_ms]:
            del self._answered[place]

    def _is_answered(self, place: TopicPartition, wished: WishedRange) -> bool:
        """All of these were acknowledged so before."""
        if wished.end - wished.start > len(self._answered):
            return False
        found = (self._answered.get((place, offset)) for offset in range(wished.start, wished.end))
        return all(each is not None and each.wish == wished.wish for each in found)

    def _drop(self, key: LockKey) -> None:
        self.lost(key, [*self._locks[key].open])
        self._locks.pop(key, None)


def _held(locks: _Locks, wished: WishedRange) -> list[tuple[int, HeldLock]] | None:
    """The lock of each offset; None if there is an offset without one."""
    if wished.end - wished.start > len(locks):
        return None
    found = [(each, locks[each]) for each in range(wished.start, wished.end) if each in locks]
    return found if len(found) == wished.end - wished.start else None


def _not_held(place: TopicPartition, wished: WishedRange) -> RequestRefused:
    return RequestRefused(
        KafkaError.invalid_record_state,
        f"offsets {wished.start} to {wished.end - 1} of {place.topic}[{place.partition}]: the member does not hold all "
        "of them, or has acknowledged some in another way",
    )


def _place(key: LockKey) -> TopicPartition:
    return TopicPartition(key.topic, key.partition)
