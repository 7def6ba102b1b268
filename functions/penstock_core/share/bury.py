"""The plan of a burial: records leave the share item for the dead-letter topic, in one transaction with its head.

The records are those that were rejected, and those whose last delivery has ended: released ones, and locks whose time
is over. If an operator lowers the bound of deliveries, records that wait have one more, which is their last. The update
expects their entries as they were read. So each record is buried once, and a client that accepts at the same time
either comes first or has lost its lock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock_core.ids import LockId, Offset
from penstock_core.limits import DEAD_LETTERS_AT_ONCE
from penstock_core.share.draft import Draft
from penstock_core.share.record_set import RecordSet
from penstock_core.share.retry import available_ms, is_last_delivery
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait
from penstock_core.share.share_update import ShareUpdate

_NO_LOCK = LockId("")
_ENTRIES_AT_ONCE = 2  # that one burial touches: the entry, and the rest of it


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


def plan_bury(
    state: ShareState, config: ShareGroupConfig, now_ms: int, records_max: int = DEAD_LETTERS_AT_ONCE
) -> BuryPlan:
    """The next records for the dead-letter topic, `records_max` at most. None of them without such a topic."""
    draft, burials, left = Draft(state), [], records_max
    for name, entry in _due(state, config, now_ms):
        if left <= 0 or draft.room() < _ENTRIES_AT_ONCE:
            break
        taken = _take(draft, name, entry, left)
        left -= taken.records.count
        burials.append(taken)
    return BuryPlan(update=draft.update(), burials=burials)


def plan_wait_longer(state: ShareState, config: ShareGroupConfig, now_ms: int) -> ShareUpdate | None:
    """Let due records wait for the longest pause, because the dead-letter topic does not take them."""
    draft = Draft(state)
    later_ms = now_ms + config.retry_backoff_ms_max
    for name, entry in _due(state, config, now_ms):
        if draft.room() < _ENTRIES_AT_ONCE:
            break
        if isinstance(entry, Lock):
            draft.put_lock(name, None)
            draft.put_wait(Wait(later_ms, entry.deliveries, entry.held, is_dead=True))
        else:
            draft.put_wait(replace(entry, available_ms=later_ms, is_dead=not entry.is_rejected))
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


def _take(draft: Draft, name: LockId, entry: Lock | Wait, limit: int) -> Burial:
    """Take up to `limit` records out of the entry."""
    if isinstance(entry, Lock):
        taken = entry.held.first(limit)
        left = entry.held.minus(taken.ranges)
        draft.put_lock(name, replace(entry, records=left.shifted(-entry.base)))
        return Burial(records=taken, deliveries=entry.deliveries, cause=BurialCause.DELIVERIES)
    taken = entry.records.first(limit)
    left = entry.records.minus(taken.ranges)
    draft.remove_wait(Offset(entry.records.start))
    if left.ranges:
        draft.put_wait(replace(entry, records=left))
    cause = BurialCause.REJECTED if entry.is_rejected else BurialCause.DELIVERIES
    return Burial(records=taken, deliveries=entry.deliveries, cause=cause, reason=entry.reason)
