"""The plan of a burial: records leave the share item for the dead-letter topic, in one transaction with its head.

The records are those that were rejected, and those whose last delivery has ended: released ones, and locks whose time
is over. If an operator lowers the bound of deliveries, records that wait have one more, which is their last. A record
that cannot be moved waits alone, so that it holds up none of its neighbours. The update expects their entries as they
were read. So each record is buried once, and a client that accepts at the same time either comes first or has lost its
lock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock_core.ids import LockId, Offset
from penstock_core.limits import DEAD_LETTERS_AT_ONCE
from penstock_core.share.draft import Draft, ShareUpdate
from penstock_core.share.record_set import Ranges, RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait
from penstock_core.share.waits import add_wait, available_ms, is_last_delivery

_NO_LOCK = LockId("")
_ENTRIES_AT_ONCE = 3  # that one burial touches: the entry, the rest of it, and the wait of what cannot be moved


class BurialCause(Enum):
    """Why a record goes to the dead-letter topic."""

    REJECTED = "rejected"
    DELIVERIES = "deliveries"  # its last delivery has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Burial:
    """Records that go to the dead-letter topic for one cause. `reason` is what the client said that rejected them."""

    records: RecordSet
    deliveries: int
    cause: BurialCause
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuryPlan:
    """The update that takes the records out of the share item, None if there are none, and the records."""

    update: ShareUpdate | None
    burials: Sequence[Burial] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """The fates of the records of a plan, once its caller has read them: `moved` leave the item.

    The caller cannot move `stuck` now: they wait for the longest pause, apart from the others of their entry. All
    others stay as they are, and are due.
    """

    moved: Ranges
    stuck: Ranges = ()


def plan_bury(
    state: ShareState,
    config: ShareGroupConfig,
    now_ms: int,
    records_max: int = DEAD_LETTERS_AT_ONCE,
    movable: Movable | None = None,
) -> BuryPlan:
    """The next records for the dead-letter topic, `records_max` at most. None of them without such a topic.

    With `movable`, only those that could be moved. Plan on the same state at the same time as before.
    """
    draft, burials, left = Draft(state), [], records_max
    for name, entry in _due(state, config, now_ms):
        if left <= 0 or draft.room() < _ENTRIES_AT_ONCE:
            break
        seen = (entry.held if isinstance(entry, Lock) else entry.records).first(left)
        left -= seen.count
        fate = movable or Movable(moved=seen.ranges)
        stuck = seen.only(fate.stuck)
        burial = _take(draft, name, entry, seen.only(fate.moved), stuck)
        if stuck.ranges:
            draft.put_wait(_longer(entry, stuck, now_ms + config.retry_backoff_ms_max))
        if burial.records.ranges:
            burials.append(burial)
    return BuryPlan(update=draft.update(), burials=burials)


def plan_wait_longer(state: ShareState, config: ShareGroupConfig, now_ms: int) -> ShareUpdate | None:
    """Let due records wait for the longest pause, because the dead-letter topic does not take them."""
    draft = Draft(state)
    later_ms = now_ms + config.retry_backoff_ms_max
    for name, entry in _due(state, config, now_ms):
        if draft.room() <= _ENTRIES_AT_ONCE:
            break
        if isinstance(entry, Lock):
            draft.put_lock(name, None)
            add_wait(draft, config, now_ms, _longer(entry, entry.held, later_ms))
        else:
            draft.put_wait(_longer(entry, entry.records, later_ms))
    return draft.update()


def has_burials(state: ShareState, config: ShareGroupConfig, now_ms: int) -> bool:
    """True if `plan_bury` finds records."""
    return next(_due(state, config, now_ms), None) is not None


def _due(state: ShareState, config: ShareGroupConfig, now_ms: int) -> Iterator[tuple[LockId, Lock | Wait]]:
    """The entries, and the ids of those that are locks."""
    if config.dead_letter_topic is None:
        return
    for _, wait in sorted(state.waits.items()):
        if wait.available_ms <= now_ms and wait.is_terminal:
            yield _NO_LOCK, wait
    for name, lock in sorted(state.locks.items()):
        if is_last_delivery(config, lock.deliveries) and available_ms(config, name, lock) <= now_ms:
            yield name, lock


def _take(draft: Draft, name: LockId, entry: Lock | Wait, taken: RecordSet, stuck: RecordSet) -> Burial:
    """Take these records out of the entry: those that are moved, and those that get a wait of their own."""
    if isinstance(entry, Lock):
        left = entry.held.minus(taken.ranges).minus(stuck.ranges)
        draft.put_lock(name, replace(entry, records=left.shifted(-entry.base)))
        return Burial(records=taken, deliveries=entry.deliveries, cause=BurialCause.DELIVERIES)
    left = entry.records.minus(taken.ranges).minus(stuck.ranges)
    draft.remove_wait(Offset(entry.records.start))
    if left.ranges:
        draft.put_wait(replace(entry, records=left))
    cause = BurialCause.REJECTED if entry.is_rejected else BurialCause.DELIVERIES
    return Burial(records=taken, deliveries=entry.deliveries, cause=cause, reason=entry.reason)


def _longer(entry: Lock | Wait, records: RecordSet, later_ms: int) -> Wait:
    """A wait of these records of the entry, which go to the dead-letter topic later."""
    if isinstance(entry, Lock):
        return Wait(later_ms, entry.deliveries, records, is_dead=True)
    return replace(entry, available_ms=later_ms, records=records, is_dead=not entry.is_rejected)
