"""Decides what becomes of records in parallel mode, where a share group counts their deliveries. Pure.

The state of a lane tells how its target does. `trouble` begins with a failure, and counts those in a row, which are
failures of whole batches without a success between. `is_well` says that the target has worked since the last failure.

A record that was delivered k times has failed k times. If no lane has had a success since, its failures are among those
in a row of all lanes. So fewer than k of them in all lanes prove that the target has worked since it failed first.

| answer | the records |
|---|---|
| all handled, or some | handled ones are accepted, failed ones come back counted |
| refusal, not at the last delivery | come back counted, and later in smaller batches |
| refusal at the last delivery, or broken: the target is well | the same; a last delivery ends in the dead letters |
| refusal at the last delivery, or broken: it is not known to be well | come back uncounted |
| away | come back uncounted |

So a target that is down sends nothing to the dead letters, whatever it answers. The lane rests after its second failure
in a row, and each time that the target is away. A record that comes back uncounted comes later than the lane does. So
others have their turn before it, and show whether the target works.
"""

from dataclasses import dataclass, replace

from penstock_core.ids import Offset
from penstock_core.limits import (
    PUSH_ERROR_LENGTH_MAX,
    PUSH_EVIDENCE_MARGIN_MS,
    PUSH_ROOM_PAUSE_MS_MAX,
    PUSH_ROOM_PAUSE_MS_MIN,
    PUSH_SUCCESS_NOTE_MS,
)
from penstock_core.push.attempt import pause_ms
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryState, Trouble, changed
from penstock_core.push.subscription import SubscriptionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFacts:
    """The time, and what the states of all lanes tell: the last success, and the failures in a row of other lanes.

    Where `needs_evidence` is False, only the time matters.
    """

    now_ms: int
    succeeded_ms: int = 0
    failures_elsewhere: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFailure:
    """The lane's state after a failure. The records' delivery counts, or they come back after `delay_ms`, uncounted."""

    state: DeliveryState
    is_counted: bool
    delay_ms: int


def batch_size(config: SubscriptionConfig, deliveries: int) -> int:
    """The records of one invocation, of those that were handed out so often, this time included.

    Each time it is half as many, and one at the last delivery. So a record that fails gets company that it does not
    take along.
    """
    if not config.bisect:
        return config.batch_records
    if is_last(config, deliveries):
        return 1
    return max(1, config.batch_records >> max(0, deliveries - 1))


def is_last(config: SubscriptionConfig, deliveries: int) -> bool:
    """True if the records go to the dead letters when this delivery of them fails and counts."""
    return config.attempts_max is not None and deliveries >= config.attempts_max


def needs_evidence(config: SubscriptionConfig, failed: Failed, deliveries: int) -> bool:
    """True if it matters for `fail_parallel` whether the target has worked for other lanes."""
    return failed.failure is Failure.BROKEN or (failed.failure is Failure.REFUSAL and is_last(config, deliveries))


def succeed_parallel(state: DeliveryState, now_ms: int) -> DeliveryState:
    """The target has handled some records. The same state if that is noted well enough: nothing to write."""
    trouble = state.trouble
    if trouble is not None and not trouble.is_well:
        return changed(
            state, succeeded_ms=now_ms, next_try_ms=0, trouble=replace(trouble, is_well=True, outages=0, attempts=0)
        )
    return state if now_ms - state.succeeded_ms < PUSH_SUCCESS_NOTE_MS else changed(state, succeeded_ms=now_ms)


def failures_in_row(state: DeliveryState) -> int:
    """The failures of whole batches since the last success of the lane."""
    return 0 if state.trouble is None else state.trouble.attempts + state.trouble.outages


def fail_parallel(
    state: DeliveryState, config: SubscriptionConfig, failed: Failed, deliveries: int, facts: ParallelFacts
) -> ParallelFailure:
    """A batch has failed whole, of records that were handed out so often, this time included."""
    now_ms, before = facts.now_ms, state.trouble
    first_ms = now_ms if before is None or before.is_well else before.first_failed_ms
    failures = failures_in_row(state) + 1
    is_proven = facts.succeeded_ms > first_ms + PUSH_EVIDENCE_MARGIN_MS
    is_well = (
        (before is not None and before.is_well)
        or failures + facts.failures_elsewhere < deliveries
        or now_ms - first_ms >= config.patience_ms
        or is_proven
    )
    is_away = failed.failure is Failure.AWAY
    is_counted = not is_away and (is_well or not needs_evidence(config, failed, deliveries))
    trouble = Trouble(
        first_failed_ms=now_ms if is_proven else first_ms,  # a success elsewhere proves once: an outage may follow it
        range_end=Offset(0),
        attempts=0 if is_away else failures,
        outages=failures if is_away else 0,
        is_broken=failed.failure is Failure.BROKEN,
        error=failed.error[:PUSH_ERROR_LENGTH_MAX],
    )
    pause = pause_ms(config, failures) if is_away else pause_ms(config, failures - 1) if failures > 1 else 0
    new = changed(state, trouble=trouble, next_try_ms=now_ms + pause if pause else 0)
    return ParallelFailure(
        state=new, is_counted=is_counted, delay_ms=(1 if is_away else 2) * pause_ms(config, failures)
    )


def end_parallel(state: DeliveryState) -> DeliveryState:
    """Nothing waits any more. The same state without trouble."""
    return state if state.trouble is None else changed(state, trouble=None, next_try_ms=0)


def blocked_pause_ms(state: DeliveryState, now_ms: int, returns_in_ms: int | None) -> int:
    """The pause of a lane that finds fresh records, and no room for them in flight.

    It is as long as the lane has had no success, so it doubles from look to look. `returns_in_ms` ends it: a record
    comes back then. Lanes that work find the room first, because they acquire after each acknowledgement.
    """
    idle_ms = max(0, now_ms - state.succeeded_ms)
    pause_ms = min(idle_ms, PUSH_ROOM_PAUSE_MS_MAX, PUSH_ROOM_PAUSE_MS_MAX if returns_in_ms is None else returns_in_ms)
    return max(pause_ms, PUSH_ROOM_PAUSE_MS_MIN)
