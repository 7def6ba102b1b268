"""Decides what happens to records in parallel mode, where a share group counts their deliveries. Pure.

The state of a lane tells how its target does. `trouble` begins with a failure, and counts those in a row, which are
failures of whole batches without a success between. `is_well` says that the target has worked since the last failure.

| answer | the records |
|---|---|
| all handled, or some | handled ones are accepted; failed ones come back counted, or go to the dead letters |
| away | come back uncounted |
| refusal, not at the last delivery; broken, and the lane is well | come back counted, and later in smaller batches |
| broken, not at the last delivery, and the lane is not well | come back uncounted |
| refusal or broken, at the last delivery, and the target has worked since the first failure | go to the dead letters |
| refusal or broken, at the last delivery, without that proof | have one delivery more |

So a target that is down sends nothing to the dead letters, whatever it answers. The lane rests after its second failure
in a row, and each time that the target is away. A record that comes back without proof comes later than the lane does.
So others have their turn before it, and show whether the target works.

**The proof.** No item keeps when a record failed first, and each of its deliveries may be another lane's. Two facts
tell enough:

- A record that was delivered k times has failed k times. If no lane has had a success since, its failures are among
  those in a row of all lanes. So fewer than k of them in all lanes prove a success. No clock is compared. A death is a
  failure, which the lane's next delivery notes.
- Each delivery but the first came after the pause of the one before. So the record failed first at least the sum of
  these pauses ago (`waited_ms`). A success of any lane after that time is a proof. Each delivery more adds a pause of
  `PUSH_PROOF_PAUSE_MS` at least. So any success is a proof in the end, if the record goes on to fail.
"""

from dataclasses import dataclass, replace
from enum import Enum

from penstock_core.ids import Offset
from penstock_core.limits import (
    PUSH_ERROR_LENGTH_MAX,
    PUSH_EVIDENCE_MARGIN_MS,
    PUSH_PROOF_PAUSE_MS,
    PUSH_ROOM_PAUSE_MS_MAX,
    PUSH_ROOM_PAUSE_MS_MIN,
    PUSH_SUCCESS_NOTE_MS,
)
from penstock_core.push.attempt import pause_ms
from penstock_core.push.batch import Failed, Failure, reason_of
from penstock_core.push.delivery import DeliveryState, Trouble, changed
from penstock_core.push.subscription import SubscriptionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFacts:
    """The time, and what the states of all lanes tell: `proof_ms`, and the failures in a row of other lanes.

    `proof_ms` is the begin of the last delivery that succeeded. Where `needs_evidence` is False, only the time matters.
    """

    now_ms: int
    proof_ms: int = 0
    failures_elsewhere: int = 0


class Fate(Enum):
    """The verb for records whose batch has failed whole.

    - `RETRY`: they come back after the backoff, and the delivery counts.
    - `GIVE_BACK`: they come back after `delay_ms`, and the delivery does not count.
    - `SPARE`: they come back after `delay_ms`, and the delivery counts, though it was to be their last.
    - `BURY`: they go to the dead letters.
    """

    RETRY = "retry"
    GIVE_BACK = "give back"
    SPARE = "spare"
    BURY = "bury"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFailure:
    """The lane's state after a failure, and what happens to the records."""

    state: DeliveryState
    fate: Fate
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
    """True if the records may go to the dead letters when this delivery of them fails."""
    return config.attempts_max is not None and deliveries >= config.attempts_max


def needs_evidence(config: SubscriptionConfig, failed: Failed, deliveries: int) -> bool:
    """True if it matters for `fail_parallel` whether the target has worked for other lanes."""
    return failed.failure is Failure.BROKEN or (failed.failure is Failure.REFUSAL and is_last(config, deliveries))


def succeed_parallel(state: DeliveryState, began_ms: int, now_ms: int) -> DeliveryState:
    """The target has handled some records, of a delivery that began at `began_ms`.

    The same state if that is noted well enough: nothing to write.
    """
    trouble, noted = state.trouble, {"succeeded_ms": now_ms, "proof_ms": began_ms}
    if trouble is not None and not trouble.is_well:
        return changed(state, **noted, next_try_ms=0, trouble=replace(trouble, is_well=True, outages=0, attempts=0))
    return state if now_ms - state.succeeded_ms < PUSH_SUCCESS_NOTE_MS else changed(state, **noted)


def note_deaths(state: DeliveryState, deaths: int, now_ms: int) -> DeliveryState:
    """The lane's last delivery has died, as so many in a row: its records have failed, and it has noted nothing."""
    before = state.trouble
    if before is None or before.is_well:
        before = Trouble(first_failed_ms=now_ms, range_end=Offset(0), error="a delivery died")
    return changed(state, trouble=replace(before, attempts=max(before.attempts + 1, deaths)))


def failures_in_row(state: DeliveryState) -> int:
    """The failures of whole batches since the last success of the lane."""
    return 0 if state.trouble is None else state.trouble.attempts + state.trouble.outages


def waited_ms(config: SubscriptionConfig, deliveries: int) -> int:
    """The time that has passed, at least, since records failed first that were handed out so often by now.

    It is the sum of the pauses between their deliveries, with jitter at its least, under the settings that hold now.
    """
    return sum(_least_pause_ms(config, each) for each in range(1, deliveries))


def fail_parallel(
    state: DeliveryState, config: SubscriptionConfig, failed: Failed, deliveries: int, facts: ParallelFacts
) -> ParallelFailure:
    """A batch has failed whole, of records that were handed out so often, this time included."""
    now_ms, before = facts.now_ms, state.trouble
    first_ms = now_ms if before is None or before.is_well else before.first_failed_ms
    failures = failures_in_row(state) + 1
    is_away = failed.failure is Failure.AWAY
    has_worked_elsewhere = facts.proof_ms > first_ms + PUSH_EVIDENCE_MARGIN_MS
    is_well = (before is not None and before.is_well) or has_worked_elsewhere or now_ms - first_ms >= config.patience_ms
    if is_away:
        fate = Fate.GIVE_BACK
    elif is_last(config, deliveries):
        fate = Fate.BURY if _is_proven(config, deliveries, failures, facts) else Fate.SPARE
    else:
        fate = Fate.GIVE_BACK if failed.failure is Failure.BROKEN and not is_well else Fate.RETRY
    trouble = Trouble(
        # A success elsewhere makes the lane well for one failure: an outage may follow it.
        first_failed_ms=now_ms if has_worked_elsewhere else first_ms,
        range_end=Offset(0),
        attempts=0 if is_away else failures,
        outages=failures if is_away else 0,
        is_broken=failed.failure is Failure.BROKEN,
        error=reason_of(failed)[:PUSH_ERROR_LENGTH_MAX],
    )
    pause = pause_ms(config, failures) if is_away else pause_ms(config, failures - 1) if failures > 1 else 0
    new = changed(state, trouble=trouble, next_try_ms=now_ms + pause if pause else 0)
    delay_ms = (1 if is_away else 2) * pause_ms(config, failures)
    if fate is Fate.SPARE:
        delay_ms = max(delay_ms, _least_pause_ms(config, deliveries))
    return ParallelFailure(state=new, fate=fate, delay_ms=delay_ms)


def _is_proven(config: SubscriptionConfig, deliveries: int, failures: int, facts: ParallelFacts) -> bool:
    """True if the target has worked since the records failed first, or the patience since then is over."""
    waited = waited_ms(config, deliveries)
    return (
        failures + facts.failures_elsewhere < deliveries
        or waited >= config.patience_ms
        or facts.proof_ms > facts.now_ms - waited + PUSH_EVIDENCE_MARGIN_MS
    )


def _least_pause_ms(config: SubscriptionConfig, deliveries: int) -> int:
    """The least time from a failure at that delivery to the next delivery. The share group's jitter halves a backoff.

    A record that is spared has the pause that `fail_parallel` gives it.
    """
    if is_last(config, deliveries):
        return max(PUSH_PROOF_PAUSE_MS, 2 * pause_ms(config, deliveries))
    return pause_ms(config, deliveries) // 2


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
