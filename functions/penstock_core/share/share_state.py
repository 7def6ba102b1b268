"""The state of one share group in one partition: which records are locked, wait, are fresh, or are finished.

```
 offset   0        40       60        90                          position
          |finished| lock a | wait 60 |  lock b  (records 95, 96) |  fresh records ...
```
A record is fresh at or above `position`. Below it, a record that is in an entry is unfinished, and every other record
is finished: it was accepted, moved to the dead-letter topic, filtered out, or it expired. There are two kinds of entry:

- a **lock**: records that one acquire handed out, until its client acknowledges them or another acquire takes them
  because the lock's time is over. The entry decides whether the lock still holds, never a clock.
- a **wait**: records that came back and may be handed out again from a time on.

Invariants: no record is in two entries; every entry lies below `position`; `open` counts the records in entries.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import LockId, LockNonce, Offset, Partition, PartitionKey, ShareGroupId, TopicId
from penstock_core.limits import SHARE_NONCE_LENGTH_MAX, SHARE_NONCE_LENGTH_MIN
from penstock_core.share.record_set import Ranges, RecordSet, normalized

AT_POSITION = Offset(-1)  # the base of a lock in an update: the position that the update meets
_NONCE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


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
    - `reason` is what the client said that rejected them, or released them from their last delivery.
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
    """

    generation: int = 0
    position: Offset
    open: int = 0
    locks: Mapping[LockId, Lock] = field(default_factory=dict)
    waits: Mapping[Offset, Wait] = field(default_factory=dict)
    waiter_ms: int | None = None

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
