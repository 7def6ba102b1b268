"""The plan of a redrive: which letters of a partition were not moved yet, and the update that notes those that move.

The share item of a hidden group says which letters have moved: those below the position that are in no entry. A redrive
passes over letters with an offset that its caller keeps, and notes nothing. So only letters that move cost a write, and
skipped ones take no room but for the ranges between moved ones. Nothing is locked: the update expects the entries and
the position as they were read, so one of two redrives of one letter is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock_core.ids import LockId, Offset
from penstock_core.limits import REDRIVE_ENTRIES, REDRIVE_ITEM_BYTES, REDRIVE_SCAN_RECORDS, SHARE_RANGES_MAX
from penstock_core.log.index import past, ranges_of
from penstock_core.share.acquire import LogBounds
from penstock_core.share.draft import Draft, ShareUpdate
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_state import Lock, ShareState, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLetters:
    """The letters that were not moved, in `ranges`. All below `end` are in them, from the offset that was asked."""

    ranges: Ranges
    end: int


def open_letters(state: ShareState, log: LogBounds, start: int, now_ms: int) -> OpenLetters:
    """The next letters from `start` on, `REDRIVE_SCAN_RECORDS` at most, of few enough entries for one update.

    Letters under a lock of an older release count as moved until it ends.
    """
    expired = ((0, max(start, log.log_start)),)
    found = [records for _, entry in _entries(state, now_ms) if (records := _records(entry).minus(expired)).ranges]
    found.sort(key=_start)
    fresh = (log.first_fresh(max(state.position, start)), log.next_offset)
    end = log.next_offset
    if len(found) > REDRIVE_ENTRIES:
        end = Offset(found[REDRIVE_ENTRIES].start)
        fresh = (end, end)
    ranges = normalized((*(span for each in found[:REDRIVE_ENTRIES] for span in each.ranges), fresh))
    below = RecordSet(ranges).only(((0, end),))
    first = below.first(REDRIVE_SCAN_RECORDS)
    first = below.only(((0, past(log.jumps, first.end)),)) if first.ranges else first  # one empty batch tells of a jump
    return OpenLetters(ranges=first.ranges, end=end if first == below else first.end)


def plan_redrive(state: ShareState, log: LogBounds, done: Ranges, now_ms: int) -> ShareUpdate | None:
    """The update that notes that the letters `done` have moved, or are gone. They are some of `open_letters`.

    None if the item would become larger than `REDRIVE_ITEM_BYTES`: too many runs of letters have moved and stayed in
    turns.
    """
    draft = Draft(state)
    for name, entry in _entries(state, now_ms):
        records = _records(entry)
        if not records.only(done).ranges:
            continue
        left = records.minus(done).minus(((0, log.log_start),))
        if isinstance(entry, Lock):
            draft.put_lock(name, None)
            _put(draft, Wait(0, entry.deliveries, left))
        else:
            draft.remove_wait(Offset(records.start))
            _put(draft, replace(entry, records=left))
    first, end = log.first_fresh(state.position), done[-1][1]
    if end > state.position:
        draft.pass_over(end - state.position)
        passed = RecordSet(((first, end),)).minus(done).minus(ranges_of(log.jumps))
        last = draft.waits.get(max(draft.waits, default=Offset(-1)))
        if last is not None and passed.ranges and len(last.records.ranges) < SHARE_RANGES_MAX:
            draft.remove_wait(Offset(last.records.start))
            _put(draft, replace(last, records=last.records.plus(passed)))
        else:
            _put(draft, Wait(0, 0, passed))
    return draft.update() if entries_bytes(draft.locks, draft.waits) <= REDRIVE_ITEM_BYTES else None


def _entries(state: ShareState, now_ms: int) -> Iterator[tuple[LockId, Lock | Wait]]:
    """The waits, and the locks whose time is over: releases before this one locked letters while they moved."""
    for wait in state.waits.values():
        yield LockId(""), wait
    for name, lock in state.locks.items():
        if lock.until_ms <= now_ms:
            yield name, lock


def _records(entry: Lock | Wait) -> RecordSet:
    return entry.held if isinstance(entry, Lock) else entry.records


def _start(records: RecordSet) -> int:
    return records.start


def _put(draft: Draft, wait: Wait) -> None:
    """Add the wait, in parts of `SHARE_RANGES_MAX` ranges."""
    ranges: list[Range] = [*wait.records.ranges]
    for at in range(0, len(ranges), SHARE_RANGES_MAX):
        draft.put_wait(replace(wait, records=RecordSet(tuple(ranges[at : at + SHARE_RANGES_MAX]))))
