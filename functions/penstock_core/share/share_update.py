"""A change of a share item as data: what must hold, and what is written. `apply` says what it means.

The adapters in memory call `apply`; the one on DynamoDB translates the update into one conditional UpdateItem
(`storage/share/share_state_item.py`), and the contract tests hold the two together.

An update names each entry that it relies on, with the value that it expects there. Entries that it does not name may
change meanwhile. So acquires of fresh records, which name none, do not disturb each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock_core.ids import LockId, Offset
from penstock_core.share.share_state import AT_POSITION, Lock, ShareState, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdate:
    """One conditional change of a share item.

    Conditions:
    - `generation` is the item's.
    - `expected_locks` and `expected_waits` are there as given; None: there is no such entry.
    - The position lies in `position_between`, both ends included; None: it may be anything.
    - At most `open_max` records are in entries, and there are at most `locks_max` locks and `waits_max` waits, before
      the change.

    Changes:
    - `locks` and `waits` are set; None removes the entry. A lock whose base is AT_POSITION gets the position before the
      change. Every lock that is set is expected, too: absent, or with its old value.
    - `advance` is added to the position and `open_delta` to `open`.
    - `arms_ms` sets the waiter. `takes_waiter` removes it.
    """

    generation: int
    expected_locks: Mapping[LockId, Lock | None] = field(default_factory=dict)
    expected_waits: Mapping[Offset, Wait | None] = field(default_factory=dict)
    position_between: tuple[int, int] | None = None
    open_max: int | None = None
    locks_max: int | None = None
    waits_max: int | None = None
    locks: Mapping[LockId, Lock | None] = field(default_factory=dict)
    waits: Mapping[Offset, Wait | None] = field(default_factory=dict)
    advance: int = 0
    open_delta: int = 0
    arms_ms: int | None = None
    takes_waiter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOutcome:
    """What happened to an update.

    `before` is the item as the update met it, None if there is none. `after` is the item then: None if the update was
    refused, or if there is no item. `maybe_applied`: it was refused, and an attempt without an answer came before that.
    """

    before: ShareState | None
    after: ShareState | None
    maybe_applied: bool = False

    @property
    def is_applied(self) -> bool:
        """True if the update changed the item."""
        return self.after is not None

    @property
    def took_waiter(self) -> bool:
        """True if the update removed a waiter: its caller must send a wake-up."""
        had_one = self.before is not None and self.before.waiter_ms is not None
        return self.after is not None and had_one and self.after.waiter_ms is None


def apply(state: ShareState | None, update: ShareUpdate) -> ShareState | None:
    """The state after the update, or None if one of its conditions does not hold."""
    if state is None or not _holds(state, update):
        return None
    locks, waits = {**state.locks}, {**state.waits}
    for lock_id, lock in update.locks.items():
        if lock is None:
            locks.pop(lock_id, None)
        elif lock.base == AT_POSITION:
            locks[lock_id] = Lock(state.position, lock.until_ms, lock.deliveries, lock.records)
        else:
            locks[lock_id] = lock
    for first, wait in update.waits.items():
        if wait is None:
            waits.pop(first, None)
        else:
            waits[first] = wait
    waiter_ms = None if update.takes_waiter else state.waiter_ms
    return ShareState(
        generation=state.generation,
        position=Offset(state.position + update.advance),
        open=state.open + update.open_delta,
        locks=locks,
        waits=waits,
        waiter_ms=waiter_ms if update.arms_ms is None else update.arms_ms,
    )


def arming(state: ShareState, now_ms: int) -> ShareUpdate:
    """Sets the waiter of the state's generation. Look at the state after it: something may have come back by then."""
    return ShareUpdate(generation=state.generation, arms_ms=now_ms)


def _holds(state: ShareState, update: ShareUpdate) -> bool:
    position, bounds = state.position, update.position_between
    return (
        state.generation == update.generation
        and (bounds is None or bounds[0] <= position <= bounds[1])
        and (update.open_max is None or state.open <= update.open_max)
        and (update.locks_max is None or len(state.locks) <= update.locks_max)
        and (update.waits_max is None or len(state.waits) <= update.waits_max)
        and all(state.locks.get(lock_id) == expected for lock_id, expected in update.expected_locks.items())
        and all(state.waits.get(first) == expected for first, expected in update.expected_waits.items())
    )
