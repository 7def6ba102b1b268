"""The entry that holds each record of a share item, and what acknowledgements say of it."""

from dataclasses import dataclass

from penstock_core.ids import LockId
from penstock_core.share.acknowledge import Acknowledgement
from penstock_core.share.share_state import Lock, ShareState, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The entry that holds a record."""

    entry: Lock | Wait
    lock_id: LockId | None


def held_in(state: ShareState) -> dict[int, Held]:
    """Return the entry of each record that is in one, by its offset."""
    found = {
        offset: Held(entry=lock, lock_id=name) for name, lock in state.locks.items() for offset in lock.held.offsets()
    }
    for wait in state.waits.values():
        found.update((offset, Held(entry=wait, lock_id=None)) for offset in wait.records.offsets())
    return found


def covers(acknowledgement: Acknowledgement, held: Held | None, offset: int) -> bool:
    """Return whether the acknowledgement is for this record."""
    if acknowledgement.offsets is not None:
        return any(start <= offset < end for start, end in acknowledgement.offsets)
    if acknowledgement.handed_out is not None:
        return any(start <= offset < end for start, end in acknowledgement.handed_out.held.ranges)
    return held is not None


def nonce_of(lock_id: LockId) -> str:
    """Return the nonce of the acquire that made the lock."""
    return lock_id.rpartition(".")[0]
