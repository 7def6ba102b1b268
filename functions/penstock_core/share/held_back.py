"""Older generations of a topic hold records of a later one back from a share group by key (docs/protocol/partitions).

A key may have moved from any partition of an older generation to any of a later one. So nothing of a later partition
is handed out while an older one has records that were never handed out. After that, it holds back the keys of the
older records that are unfinished, and no other ones: a poison record stops its key, and not the group.

An old view is safe. Older partitions are closed, so once all of their records were handed out, the set of their
unfinished keys only shrinks. Two things are not in it: records of timers behind the place where a partition was closed,
which have no order among others, and records that go to the dead-letter topic, which have left the order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_core.log.index import Head
from penstock_core.share.share_state import ShareState

_NO_KEY = 0  # the hash of a record without a key


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
