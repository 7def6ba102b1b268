"""The state of one share group in one partition: which records are locked, wait, are fresh, or are finished.

```
 offset   0        40       60        90                          position
          |finished| lock a | wait 60 |  lock b  (records 95, 96) |  fresh records ...
```
A record is fresh at or above `position`. Below it, a record that is in an entry is unfinished, and every other record
is finished: it was accepted, moved to the dead-letter topic, filtered out, or it expired, by its header or by
retention. There are two kinds of entry:

- a **lock**: records that one acquire handed out, until its client acknowledges them or another acquire takes them
  because the lock's time is over. The entry decides whether the lock still holds, never a clock.
- a **wait**: records that came back and may be handed out again from a time on.

Invariants: no record is in two entries; every entry lies below `position`; `open` counts the records in entries.

Older generations of a topic hold records of a later one back from a share group by key (docs/protocol/partitions).

A key may have moved from any partition of an older generation to any of a later one. So nothing of a later partition
is handed out while an older one has records that were never handed out. After that, it holds back the keys of the
older records that are unfinished, and no other ones: a poison record stops its key, and not the group.

An old view is safe. Older partitions are closed, so once all of their records were handed out, the set of their
unfinished keys only shrinks. Two things are not in it: records of timers behind the place where a partition was closed,
which have no order among others, and records that go to the dead-letter topic, which have left the order.

The consumers that hold locks of a partition, by the names in their nonces.

```
 worker-1   --   k3J_x9Qa
 name       two  48 random bits
```
The service keeps no members of share groups, and stores nothing for these names: each lock's id has the nonce of its
acquire anyway. A name is what a client says of itself. It helps operators, and no decision may depend on it.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import LockId, LockNonce, Offset, Partition, PartitionKey, ShareGroupId, TopicId
from penstock_core.limits import (
    SHARE_HOLDERS_MAX,
    SHARE_LOCK_NAME_LENGTH_MAX,
    SHARE_NONCE_LENGTH_MAX,
    SHARE_NONCE_LENGTH_MIN,
)
from penstock_core.log.index import Head
from penstock_core.share.reasons import Reason
from penstock_core.share.record_set import Ranges, RecordSet, normalized

AT_POSITION = Offset(-1)  # the base of a lock in an update: the position that the update meets
_NONCE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_NO_KEY = 0  # the hash of a record without a key
RANDOM_BYTES = 6
_RANDOM_LENGTH = 8  # in base64
_SEPARATOR = "--"
_OTHERS = re.compile(r"[^A-Za-z0-9_]+", re.ASCII)


class ShareKey(NamedTuple):
    """A partition of a topic, as one share group sees it."""

    share_group_id: ShareGroupId
    topic_id: TopicId
    partition: Partition

    @property
    def partition_key(self) -> PartitionKey:
        """The partition itself."""
        return PartitionKey(self.topic_id, self.partition)

    def __str__(self) -> str:
        return f"{self.share_group_id}#{self.topic_id}#{self.partition}"


@dataclass(frozen=True, slots=True)
class Lock:
    """Records that one acquire handed out. `records` are relative to `base`.

    - `until_ms` is when the lock's time is over.
    - `deliveries` counts how often the records were handed out, this time included.
    """

    base: Offset
    until_ms: int
    deliveries: int
    records: RecordSet

    @property
    def held(self) -> RecordSet:
        """The records with their offsets in the partition."""
        return self.records.shifted(self.base)


@dataclass(frozen=True, slots=True)
class Wait:
    """Records that came back.

    - `available_ms` is from when they may be handed out again, or moved to the dead-letter topic.
    - `deliveries` counts how often they were handed out.
    - `is_rejected` says that a client rejected them.
    - `is_dead` says that their last delivery has ended. That stays so, whatever bound is set later.
    - `reason` is what the client said that rejected them, or released them from their last delivery. Reasons of other
      releases are in `ShareState.reasons`.
    - `is_suspect` says that their lock expired: one of them may have killed its worker.
    """

    available_ms: int
    deliveries: int
    records: RecordSet
    is_rejected: bool = False
    reason: str = ""
    is_dead: bool = False
    is_suspect: bool = False

    @property
    def is_terminal(self) -> bool:
        """True if the records go to the dead-letter topic."""
        return self.is_rejected or self.is_dead


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The share item of one partition.

    - `generation` rises with each reset. An update is for one generation.
    - `waits` are keyed by their first offset.
    - `waiter_ms` is since when a consumer waits for records that come back, None if none does.
    - `reasons` are those of releases, the oldest first. Some may be of records that are finished by now.
    - `expired` counts the records that were finished because their time was over (records/expiry.py).
    """

    generation: int = 0
    position: Offset
    open: int = 0
    locks: Mapping[LockId, Lock] = field(default_factory=dict)
    waits: Mapping[Offset, Wait] = field(default_factory=dict)
    waiter_ms: int | None = None
    reasons: Sequence[Reason] = ()
    expired: int = 0

    @property
    def start_offset(self) -> Offset:
        """The first offset that is not finished. All below it are."""
        return Offset(min((records.start for records in self.entries()), default=self.position))

    def entries(self) -> Iterator[RecordSet]:
        """The records of each entry."""
        for lock in self.locks.values():
            yield lock.held
        for wait in self.waits.values():
            yield wait.records

    def unfinished(self) -> Ranges:
        """The offsets below the position that are not finished."""
        return normalized(span for records in self.entries() for span in records.ranges)


def parse_lock_nonce(text: str) -> LockNonce:
    """The nonce of an acquire: 8 to 22 of `A-Z a-z 0-9 - _`, drawn at random by the client.

    Raises INVALID_REQUEST.
    """
    if not SHARE_NONCE_LENGTH_MIN <= len(text) <= SHARE_NONCE_LENGTH_MAX or not _NONCE.fullmatch(text):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"nonce={shown(text)}: must be {SHARE_NONCE_LENGTH_MIN} to {SHARE_NONCE_LENGTH_MAX} of A-Z a-z 0-9 - _, "
            "drawn at random for each acquire",
        )
    return LockNonce(text)


def lock_id(nonce: LockNonce, index: int) -> LockId:
    """The id of an acquire's lock. Every acquire that hands out records has the one with index 0."""
    return LockId(f"{nonce}.{index}")


def locks_of(state: ShareState, nonce: LockNonce) -> dict[LockId, Lock]:
    """The locks of the acquire with this nonce, in order of their ids."""
    prefix = f"{nonce}."
    return {found: state.locks[found] for found in sorted(state.locks) if found.startswith(prefix)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """`is_all`: an older partition has records that were never handed out. Else only records of `keys` stay behind.

    The last older partition was closed at `closed_ms`.
    """

    is_all: bool = False
    keys: frozenset[int] = frozenset()
    closed_ms: int = 0

    def __bool__(self) -> bool:
        return self.is_all or bool(self.keys)


NOTHING_HELD = HeldBack()


def held_back(older: Iterable[tuple[Head, ShareState | None]]) -> HeldBack:
    """The records that these older partitions hold back. A state is None where nothing was ever handed out."""
    is_all, closed_ms, keys = False, 0, set[int]()
    for head, state in older:
        end = head.next_offset if head.closed_offset is None else head.closed_offset
        position = head.next_record(0 if state is None else state.position)
        unfinished = set() if state is None else _unfinished_keys(state, head.log_start_offset, end)
        if position < end or unfinished:
            closed_ms = max(closed_ms, head.closed_ms or 0)
        is_all |= position < end
        keys |= unfinished
    return HeldBack(is_all=is_all, keys=frozenset(keys), closed_ms=closed_ms)


def _unfinished_keys(state: ShareState, log_start: int, end: int) -> set[int]:
    entries = [lock.held for lock in state.locks.values()]
    entries += [wait.records for wait in state.waits.values() if not wait.is_terminal]
    return {
        value
        for records in entries
        for offset, value in records.hash_by_offset().items()
        if log_start <= offset < end and value != _NO_KEY
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A consumer with locks whose time is not over, or all those without a name together.

    `consumer` is the end of its name. `until_ms` is when the last of its locks ends.
    """

    consumer: str
    locks: int
    records: int
    until_ms: int


def named_nonce(consumer_id: str, random: bytes) -> LockNonce:
    """A nonce with the end of the consumer's name. `random` has `RANDOM_BYTES` bytes."""
    assert len(random) == RANDOM_BYTES
    name = _OTHERS.sub("-", consumer_id)[-SHARE_LOCK_NAME_LENGTH_MAX:].strip("-")
    drawn = base64.urlsafe_b64encode(random).decode()
    return LockNonce(f"{name}{_SEPARATOR}{drawn}" if name else drawn)


def name_of(lock_id: LockId) -> str:
    """The end of the name of the consumer that holds the lock; empty for a nonce that tells none."""
    nonce = lock_id.rpartition(".")[0]
    name = nonce[:-_RANDOM_LENGTH]
    return name.removesuffix(_SEPARATOR) if name.endswith(_SEPARATOR) else ""


def holders_of(state: ShareState, start: Offset, now_ms: int) -> tuple[Sequence[Holder], int]:
    """Up to `SHARE_HOLDERS_MAX` holders of records from `start` on, and the number of further ones.

    The holder of the most records comes first.
    """
    found: dict[str, Holder] = {}
    for lock_id, lock in state.locks.items():
        count = lock.held.minus(((0, start),)).count
        if lock.until_ms <= now_ms or not count:
            continue
        name = name_of(lock_id)
        seen = found.get(name) or Holder(consumer=name, locks=0, records=0, until_ms=0)
        found[name] = replace(
            seen,
            locks=seen.locks + 1,
            records=seen.records + count,
            until_ms=max(seen.until_ms, lock.until_ms),
        )
    ordered = sorted(found.values(), key=lambda each: (-each.records, each.consumer))
    return ordered[:SHARE_HOLDERS_MAX], max(0, len(ordered) - SHARE_HOLDERS_MAX)
