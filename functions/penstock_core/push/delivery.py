"""The state of one partition of a subscription, and what a delivery makes of it. Pure.

The lane of the partition is locked while a delivery works (lane.py). Each change makes a whole new state with the next
`version`, and an adapter puts it on condition of the version before it. So a delivery that was frozen for long, or a
write that comes late, changes nothing.

The range that fails begins at `offset`, because what succeeds before it is committed. `attempt.py` decides what is
tried after a failure.
"""

from dataclasses import dataclass, replace
from typing import Any

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_ERROR_LENGTH_MAX
from penstock_core.push.batch import Failure


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

    Nothing is tried before `next_try_ms`. `succeeded_ms` is the time of the last success. `version` rises with each
    write; it is 1 in the first state that is stored.
    """

    offset: Offset
    version: int = 1
    next_try_ms: int = 0
    succeeded_ms: int = 0
    trouble: Trouble | None = None


def pause(state: DeliveryState, next_try_ms: int) -> DeliveryState:
    """Nothing is tried before `next_try_ms`."""
    return _next(state, next_try_ms=next_try_ms)


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
    return _next(
        state, trouble=replace(trouble, failing_end=failing_end, try_end=try_end, attempts=trouble.attempts + 1)
    )


def commit(state: DeliveryState, next_offset: Offset, now_ms: int) -> DeliveryState:
    """The target has answered for all records below `next_offset`.

    Behind a part that succeeded, the rest of its batch is tried next.
    """
    if next_offset <= state.offset:
        raise ValueError(f"commit of offset {next_offset} at {state.offset}")
    trouble = state.trouble
    if trouble is not None:
        end = trouble.failing_end
        rest = replace(trouble, try_end=end, attempts=0, outages=0)
        trouble = None if end is None or next_offset >= end else rest
    return _next(state, offset=next_offset, next_try_ms=0, succeeded_ms=now_ms, trouble=trouble)


def fail(state: DeliveryState, failure: Failure, end: Offset, error: str, now_ms: int) -> DeliveryState:
    """The attempt at `[offset, end)` has failed. `attempt.next_attempt` says what comes then.

    The first failure of a batch is its first attempt: no `begin` has counted it.
    """
    trouble = state.trouble or Trouble(first_failed_ms=now_ms, failing_end=end, try_end=end, attempts=1)
    if failure is Failure.AWAY:
        trouble = replace(trouble, attempts=max(0, trouble.attempts - 1), outages=trouble.outages + 1)
    else:
        trouble = replace(trouble, outages=0)
    return _next(state, trouble=replace(trouble, error=error[:PUSH_ERROR_LENGTH_MAX]))


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
    return _next(state, trouble=trouble)


def _next(state: DeliveryState, **changes: Any) -> DeliveryState:
    return replace(state, version=state.version + 1, **changes)
