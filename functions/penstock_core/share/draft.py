"""A share state on which a plan works, and the update that takes the stored one there.

A draft remembers each entry that the plan changes. `update` expects these entries as they were read. It counts `open`
from the records that entries gain and lose, so a plan cannot miscount. A record that leaves all entries is finished.

An update that adds locks or waits has a condition on their number, so the item has a bound whatever many plans add at
the same time. An item above the bound, of an older release, gains none unseen.

A change of a share item as data: what must hold, and what is written. `apply` says what it means.

The adapters in memory call `apply`; the one on DynamoDB translates the update into one conditional UpdateItem
(`storage/share/share_state_item.py`), and the contract tests hold the two together.

An update names each entry that it relies on, with the value that it expects there. Entries that it does not name may
change meanwhile. So acquires of fresh records, which name none, do not disturb each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_ENTRIES_MAX, SHARE_LOCKS_ALL_MAX, SHARE_REASONS_MAX, SHARE_WAITS_MAX
from penstock_core.share.reasons import Reason, fewer, reason_for, with_reason
from penstock_core.share.record_set import Ranges, RecordSet, normalized
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
    - With `adds_reasons` at most `reasons_count` reasons are there. With `sets_reasons` it is just their number.

    Changes:
    - `locks` and `waits` are set; None removes the entry. A lock whose base is AT_POSITION gets the position before the
      change. Every lock that is set is expected, too: absent, or with its old value.
    - `advance` is added to the position and `open_delta` to `open`.
    - `arms_ms` sets the waiter. `takes_waiter` removes it.
    - `adds_reasons` go to the end of the reasons. `sets_reasons` takes the place of all; None leaves them.
    - `expired` of the records that leave their entries, or that the position passes, were finished by their time.
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
    adds_reasons: Sequence[Reason] = ()
    sets_reasons: Sequence[Reason] | None = None
    reasons_count: int = 0
    expired: int = 0


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
    reasons = state.reasons if update.sets_reasons is None else update.sets_reasons
    return ShareState(
        generation=state.generation,
        position=Offset(state.position + update.advance),
        open=state.open + update.open_delta,
        locks=locks,
        waits=waits,
        waiter_ms=waiter_ms if update.arms_ms is None else update.arms_ms,
        reasons=(*reasons, *update.adds_reasons),
        expired=state.expired + update.expired,
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
        and (not update.adds_reasons or len(state.reasons) <= update.reasons_count)
        and (update.sets_reasons is None or len(state.reasons) == update.reasons_count)
        and all(state.locks.get(lock_id) == expected for lock_id, expected in update.expected_locks.items())
        and all(state.waits.get(first) == expected for first, expected in update.expected_waits.items())
    )


class Draft:
    """A state that a plan may change. `takes_waiter`, `waits_max` and `expired` are for the plan to set."""

    def __init__(self, state: ShareState) -> None:
        self._read = state
        self.locks: dict[LockId, Lock] = {**state.locks}
        self.waits: dict[Offset, Wait] = {**state.waits}
        self._changed_locks: dict[LockId, None] = {}
        self._changed_waits: dict[Offset, None] = {}
        self._advance: int = 0
        self._position_between: tuple[int, int] | None = None
        self._locks_max = SHARE_LOCKS_ALL_MAX
        self.waits_max = SHARE_WAITS_MAX
        self._in_flight_max: int | None = None
        self.takes_waiter: bool = False
        self._new_reasons: list[Reason] = []
        self.expired = 0

    @property
    def generation(self) -> int:
        """The generation as it was read."""
        return self._read.generation

    @property
    def position(self) -> Offset:
        """The position as it was read."""
        return self._read.position

    @property
    def open(self) -> int:
        """The records in entries, after the changes so far."""
        return self._read.open + self._open_delta()

    def room(self) -> int:
        """How many more entries this update may touch."""
        return SHARE_ENTRIES_MAX - len(self._changed_locks) - len(self._changed_waits)

    def changed_waits(self) -> list[Wait]:
        """The waits that this update adds or changes."""
        return [self.waits[first] for first in self._changed_waits if first in self.waits]

    def put_lock(self, lock_id: LockId, lock: Lock | None) -> None:
        """Set the lock, or remove it. One without records is removed."""
        self._changed_locks[lock_id] = None
        if lock is None or not lock.records.ranges:
            self.locks.pop(lock_id, None)
        else:
            self.locks[lock_id] = lock

    def put_wait(self, wait: Wait) -> None:
        """Add a wait, under its first offset."""
        first = Offset(wait.records.start)
        self._changed_waits[first] = None
        self.waits[first] = wait

    def remove_wait(self, first: Offset) -> None:
        """Remove a wait."""
        self._changed_waits[first] = None
        self.waits.pop(first, None)

    def note_reason(self, text: str, ranges: Ranges) -> None:
        """Keep what a client said of records that it released."""
        self._new_reasons = with_reason(self._new_reasons, reason_for(text, ranges))[-SHARE_REASONS_MAX:]

    def hand_out_fresh(self, lock_id: LockId, lock: Lock, log_start: int, next_offset: int) -> None:
        """Lock the next records from the position on, wherever it is when the update is applied.

        For a position within a jump, `log_start` is the end of the jump: nothing is below it that was not locked.

        `lock` has records relative to the position, from 0 on. They must lie between the log start and the next offset
        as they were seen. Both only rise, so an old view is only cautious.
        """
        count, position = lock.records.end, self._read.position
        base = AT_POSITION
        self._advance = count
        self._position_between = log_start, next_offset - count
        if position < log_start:  # the records below the log start have expired
            base = Offset(log_start)
            self._advance = log_start - position + count
            self._position_between = position, position
        self._changed_locks[lock_id] = None
        self.locks[lock_id] = Lock(base, lock.until_ms, lock.deliveries, lock.records)

    def pass_over(self, count: int) -> None:
        """Move the position by `count`, on condition that it is as it was read."""
        self._advance = count
        self._position_between = self._read.position, self._read.position

    def bound(self, locks_max: int, in_flight_max: int) -> None:
        """Let the update hold these bounds, counted after it."""
        self._locks_max, self._in_flight_max = locks_max, in_flight_max

    def update(self) -> ShareUpdate | None:
        """The update to this state; None if nothing changes."""
        locks = {name: self.locks.get(name) for name in self._changed_locks}
        waits = {first: self.waits.get(first) for first in self._changed_waits}
        expected_locks = {name: self._read.locks.get(name) for name in locks}
        expected_waits = {first: self._read.waits.get(first) for first in waits}
        if locks == expected_locks and waits == expected_waits and not self._advance:
            return None
        delta, known = self._open_delta(), len(self._read.reasons)
        is_full = bool(self._new_reasons) and known + len(self._new_reasons) > SHARE_REASONS_MAX
        return ShareUpdate(
            generation=self._read.generation,
            expected_locks=expected_locks,
            expected_waits=expected_waits,
            position_between=self._position_between,
            open_max=None if self._in_flight_max is None else self._in_flight_max - delta,
            locks_max=_before(self._locks_max, len(self._read.locks), len(self.locks)),
            waits_max=_before(self.waits_max, len(self._read.waits), len(self.waits)),
            locks=locks,
            waits=waits,
            advance=self._advance,
            open_delta=delta,
            takes_waiter=self.takes_waiter,
            adds_reasons=() if is_full else self._new_reasons,
            sets_reasons=self._fewer_reasons() if is_full else None,
            reasons_count=known if is_full else SHARE_REASONS_MAX - len(self._new_reasons),
            expired=self.expired,
        )

    def _fewer_reasons(self) -> Sequence[Reason]:
        held = [lock.held for lock in self.locks.values()] + [wait.records for wait in self.waits.values()]
        unfinished = normalized(span for records in held for span in records.ranges)
        return [*fewer(self._read.reasons, unfinished), *self._new_reasons][-SHARE_REASONS_MAX:]

    def _open_delta(self) -> int:
        def count(record_sets: list[RecordSet]) -> int:
            return sum(records.count for records in record_sets)

        before = [self._read.locks[name].records for name in self._changed_locks if name in self._read.locks]
        before += [self._read.waits[first].records for first in self._changed_waits if first in self._read.waits]
        after = [self.locks[name].records for name in self._changed_locks if name in self.locks]
        after += [self.waits[first].records for first in self._changed_waits if first in self.waits]
        return count(after) - count(before)


def _before(count_max: int, read: int, after: int) -> int | None:
    """How many entries there may be before an update that adds some. None for one that adds none."""
    return None if after <= read else max(read, count_max - (after - read))
