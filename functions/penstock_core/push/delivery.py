"""The state of one partition of an ordered subscription, and what a delivery makes of it. Pure.

The holder of the lock is the only writer: each change expects the epoch that its delivery took. So a change is the
whole new state, and an adapter puts it on condition of the epoch before it.

```
 free ──take──> held ──commit──> held ──release──> free
                 │ └───fail──> held, in trouble ──release──> free, nothing is tried before next_try_ms
                 └─its function dies─> over: the next take counts a failed attempt
```

The range that fails begins at `offset`, because what succeeds before it is committed. `attempt.py` decides what is
tried after a failure.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_ERROR_LENGTH_MAX, PUSH_LOCK_MS

FREE = 0


class Failure(StrEnum):
    """The two kinds of failure."""

    OUTAGE = "outage"
    """The target is throttled, away, denied or broken. It tells nothing of the records."""
    REFUSAL = "refusal"
    """The target could not handle these records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A failing range of records, since `first_failed_ms`.

    - `[offset, failing_end)` holds a record that failed. None: the function died of a batch whose end nobody noted.
    - `[offset, try_end)` is tried next; `attempts` counts its attempts, each before it is made.
    - `is_split`: it is a part of a batch that had all its attempts.
    - `outages` counts the outages in a row.
    """

    first_failed_ms: int
    failing_end: Offset | None = None
    try_end: Offset | None = None
    attempts: int = 0
    is_split: bool = False
    outages: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryState:
    """`offset` is the first record that the target has not answered for.

    `locked_until_ms` is FREE if no delivery holds the lock. `succeeded_ms` is the time of the last commit.
    """

    offset: Offset
    epoch: int = 0
    locked_until_ms: int = FREE
    next_try_ms: int = 0
    succeeded_ms: int = 0
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Another delivery has the lock. Its own message stands for all records, so a message that finds this may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Nothing is tried before `until_ms`. The message of that time stands for all records."""

    until_ms: int


def take(state: DeliveryState, now_ms: int) -> DeliveryState | Held | Paused:
    """The state with the lock taken, under a new epoch.

    A lock that ended without a release is an attempt that failed: its function died, perhaps of these records. In
    trouble `begin` has counted that attempt already.
    """
    if state.locked_until_ms > now_ms:
        return Held()
    if state.next_try_ms > now_ms:
        return Paused(until_ms=state.next_try_ms)
    trouble = state.trouble
    if state.locked_until_ms != FREE and trouble is None:
        trouble = Trouble(first_failed_ms=state.locked_until_ms, attempts=1, error="the delivery died")
    return replace(renew(state, now_ms), epoch=state.epoch + 1, next_try_ms=0, trouble=trouble)


def renew(state: DeliveryState, now_ms: int) -> DeliveryState:
    """The lock lasts `PUSH_LOCK_MS` from now on."""
    return replace(state, locked_until_ms=now_ms + PUSH_LOCK_MS)


def release(state: DeliveryState, next_try_ms: int = 0) -> DeliveryState:
    """The lock is free. Nothing is tried before `next_try_ms`."""
    return replace(state, locked_until_ms=FREE, next_try_ms=next_try_ms)


def end_of_try(state: DeliveryState, batch_end: Offset) -> Offset:
    """The end of the records to deliver next, of a batch that was read up to `batch_end`."""
    end = None if state.trouble is None else state.trouble.try_end
    return batch_end if end is None else min(end, batch_end)


def begin(state: DeliveryState, try_end: Offset) -> DeliveryState:
    """Counts an attempt at `[offset, try_end)` before it is made. The same state without trouble: nothing to write."""
    trouble = state.trouble
    if trouble is None:
        return state
    failing_end = try_end if trouble.failing_end is None else trouble.failing_end
    return replace(
        state, trouble=replace(trouble, failing_end=failing_end, try_end=try_end, attempts=trouble.attempts + 1)
    )


def commit(state: DeliveryState, next_offset: Offset, now_ms: int) -> DeliveryState:
    """The target has answered for all records below `next_offset`. It renews the lock, too.

    Behind a part that succeeded, the rest of its batch is tried next.
    """
    if next_offset <= state.offset:
        raise ValueError(f"commit of offset {next_offset} at {state.offset}")
    trouble = state.trouble
    if trouble is not None:
        end = trouble.failing_end
        rest = replace(trouble, try_end=end, attempts=0, outages=0)
        trouble = None if end is None or next_offset >= end else rest
    return replace(renew(state, now_ms), offset=next_offset, succeeded_ms=now_ms, trouble=trouble)


def fail(state: DeliveryState, failure: Failure, end: Offset, error: str, now_ms: int) -> DeliveryState:
    """The attempt at `[offset, end)` has failed. `attempt.next_attempt` says what comes then.

    The first failure of a batch is its first attempt: no `begin` has counted it.
    """
    trouble = state.trouble or Trouble(first_failed_ms=now_ms, failing_end=end, try_end=end, attempts=1)
    if failure is Failure.OUTAGE:
        trouble = replace(trouble, attempts=max(0, trouble.attempts - 1), outages=trouble.outages + 1)
    else:
        trouble = replace(trouble, outages=0)
    return replace(renew(state, now_ms), trouble=replace(trouble, error=error[:PUSH_ERROR_LENGTH_MAX]))


def fail_record(state: DeliveryState, error: str, now_ms: int) -> DeliveryState:
    """The target has named the record at `offset`: it is the one that failed, and is tried alone from now on."""
    alone = Offset(state.offset + 1)
    known = state.trouble
    is_same = known is not None and known.failing_end == alone
    trouble = Trouble(
        first_failed_ms=now_ms if known is None else known.first_failed_ms,
        failing_end=alone,
        try_end=alone,
        attempts=known.attempts if known is not None and is_same else 1,
        error=error[:PUSH_ERROR_LENGTH_MAX],
    )
    return replace(renew(state, now_ms), trouble=trouble)
