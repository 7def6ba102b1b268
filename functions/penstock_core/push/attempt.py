"""Decides what a delivery does next with a partition: an attempt, a rest, or the dead letters. Pure.

`plan` decides before each attempt, from the state alone. So a delivery whose function dies is a failure like any other.

A batch that fails gets all its attempts. Then it is halved at its middle record again and again, and each part gets one
attempt, until one record is left. That record gets all its attempts alone, with pauses. After a lower half has
succeeded, the upper half is known to fail: it is halved at once.

A failure tells this:

| failure | counts | leads on |
|---|---|---|
| refusal, or a death of the function | yes | yes |
| broken: 5xx, timeout | yes | only after the target has worked for other records, or the patience is over |
| away: throttled, denied, missing, unreachable | no | no |

A record goes to the dead letters after a last attempt that began when the target was known to work. It is, if another
delivery has succeeded that began after the batch failed first, or a part of the same batch. Records that fail and are
too old go there in any case.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock_core.ids import Offset
from penstock_core.limits import (
    DEAD_LETTERS_AT_ONCE,
    PUSH_ATTEMPTS_DEFAULT,
    PUSH_ERROR_LENGTH_MAX,
    PUSH_EVIDENCE_MARGIN_MS,
)
from penstock_core.push.batch import Failed, Failure, reason_of
from penstock_core.push.delivery import DeliveryState, Trouble, changed, is_open, wait_for_more
from penstock_core.push.subscription import SubscriptionConfig

_DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A record that the target is to get."""

    offset: Offset
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The records of one batch, read from the state's offset up to `end`.

    `is_full`: it waits for no more of them. `fill` is the part of a full batch that is there.
    """

    records: Sequence[Candidate]
    end: Offset
    is_full: bool = True
    fill: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts next to the state. `deaths` counts the deliveries in a row that died with the lane.

    `proof_ms` is the begin of the last delivery of the subscription that succeeded; None if it was not read.
    """

    now_ms: int
    deaths: int = 0
    proof_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The first record of a batch that the target has named as failed. `is_first`: it is the batch's first record.

    `has_proof`: the target has handled others of the batch, before it, or between records that failed. A handler that
    stops at the first failure names it alone, or all behind it too: that proves nothing.
    """

    offset: Offset
    is_first: bool
    has_proof: bool
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """The records below `end` are tried. `state` has counted the attempt: store it first, if it is a new one.

    `is_alone`: they are not halved, because it is one record, or because the settings say so.
    """

    state: DeliveryState
    end: Offset
    is_alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing is done before `state.next_try_ms`. Store `state`, if it is a new one."""

    state: DeliveryState


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """No record below `end` is for the target."""

    end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """The records below `end` go to the dead-letter topic, `DEAD_LETTERS_AT_ONCE` at most."""

    end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsEvidence:
    """Plan again with `Facts.proof_ms`."""


Plan = Try | Rest | Skip | Bury | NeedsEvidence


def plan(state: DeliveryState, config: SubscriptionConfig, found: Found, facts: Facts) -> Plan:
    """The next step of the partition."""
    if facts.now_ms < state.next_try_ms and not is_open(state):
        return Rest(state=state)
    trouble = state.trouble
    if trouble is not None:
        return _plan_in_trouble(state, trouble, config, _upto(found, _bound(trouble)), facts)
    if not found.records:
        return Skip(end=found.end)
    if config.batch_window_ms and not found.is_full:
        waits = wait_for_more(state, config.batch_window_ms, found.end, found.fill, facts.now_ms)
        if waits is not None:
            return Rest(state=waits)
    is_alone = _is_alone(config, found)
    if not facts.deaths:
        return Try(state=state, end=found.end, is_alone=is_alone)
    first = Trouble(first_failed_ms=facts.now_ms, range_end=found.end, try_end=found.end, attempts=1)
    return Try(state=changed(state, trouble=first), end=found.end, is_alone=is_alone)


def fail(state: DeliveryState, config: SubscriptionConfig, tried: Try, failed: Failed, now_ms: int) -> DeliveryState:
    """The attempt has failed as a whole."""
    end = tried.end
    trouble = state.trouble or Trouble(first_failed_ms=now_ms, range_end=end, try_end=end, attempts=1)
    trouble = replace(trouble, error=reason_of(failed)[:PUSH_ERROR_LENGTH_MAX])
    if failed.failure is Failure.AWAY:
        trouble = replace(trouble, attempts=max(0, trouble.attempts - 1), outages=trouble.outages + 1, is_well=False)
        return changed(state, trouble=trouble, next_try_ms=now_ms + pause_ms(config, trouble.outages))
    first_ms = now_ms if trouble.failing_end is None else trouble.first_failed_ms  # the target may have worked before
    trouble = replace(
        trouble, first_failed_ms=first_ms, failing_end=end, outages=0, is_broken=failed.failure is Failure.BROKEN
    )
    return _failed(state, config, trouble, now_ms, is_alone=tried.is_alone)


def fail_record(
    state: DeliveryState, config: SubscriptionConfig, named: Named, began_ms: int, now_ms: int
) -> DeliveryState:
    """The records before the named one are handled. It is tried alone from now on. The delivery began at `began_ms`."""
    known, alone = state.trouble, Offset(named.offset + 1)
    is_same = known is not None and known.try_end == alone and named.is_first
    trouble = Trouble(
        first_failed_ms=now_ms if known is None or known.failing_end is None else known.first_failed_ms,
        range_end=alone,
        failing_end=alone,
        try_end=alone,
        attempts=known.attempts if known is not None and is_same else 1,
        is_well=named.has_proof or (known is not None and known.is_well),
        error=reason_of(Failed(failure=Failure.REFUSAL, error=named.error))[:PUSH_ERROR_LENGTH_MAX],
    )
    state = replace(state, offset=max(state.offset, named.offset))
    if named.has_proof:
        state = replace(state, succeeded_ms=now_ms, proof_ms=began_ms)
    return _failed(state, config, trouble, now_ms, is_alone=True)


def pause_ms(config: SubscriptionConfig, failures: int) -> int:
    """The pause after so many failures in a row. It has no jitter: one delivery of a partition waits, not a crowd."""
    return min(config.backoff_ms_max, config.backoff_ms_min << min(max(failures - 1, 0), _DOUBLINGS_MAX))


def patience_ends_ms(state: DeliveryState, config: SubscriptionConfig) -> int | None:
    """The time at which the patience ends that the records wait for, None if they do not wait for it.

    They had their attempts, and no success of another delivery tells that the target works. If one comes before that
    time, they go on at once.
    """
    trouble = state.trouble
    if trouble is None or trouble.is_well or trouble.outages:
        return None
    is_alone = not config.bisect or trouble.try_end == state.offset + 1
    attempts_max = _attempts_max(config, trouble, is_alone)
    if is_alone:
        waits = config.dead_letter_topic is not None and trouble.attempts >= max(1, attempts_max - 1)
    else:
        waits = trouble.is_broken and trouble.attempts >= attempts_max
    return trouble.first_failed_ms + config.patience_ms if waits else None


def _plan_in_trouble(
    state: DeliveryState, trouble: Trouble, config: SubscriptionConfig, found: Found, facts: Facts
) -> Plan:
    if not found.records:
        return Skip(end=found.end)
    if config.dead_letter_topic is not None:
        old = _old_records(found, config, facts.now_ms)
        if old:
            return _bury(found, old)
    if _is_alone(config, found):
        return _plan_alone(state, trouble, config, found, facts)
    is_known = trouble.is_split and trouble.failing_end is not None and trouble.try_end is None
    if not is_known and trouble.attempts < _attempts_max(config, trouble, is_alone=False):
        return _begin(state, trouble, config, found, facts)
    if not trouble.is_broken:
        return _halve(state, trouble, config, found, facts)
    is_well = _is_well(trouble, config, facts)
    if is_well is None:
        return NeedsEvidence()
    if not is_well:
        return _begin(state, trouble, config, found, facts)
    return _halve(state, replace(trouble, is_well=True), config, found, facts)


def _plan_alone(state: DeliveryState, trouble: Trouble, config: SubscriptionConfig, found: Found, facts: Facts) -> Plan:
    """The last attempt before the dead letters begins when the target is known to work. So no outage fills them."""
    attempts_max = _attempts_max(config, trouble, is_alone=True)
    if config.dead_letter_topic is None or trouble.attempts < max(1, attempts_max - 1):
        return _begin(state, trouble, config, found, facts)
    if trouble.is_well and trouble.attempts >= attempts_max and trouble.try_end == found.end:
        return _bury(found, len(found.records))
    is_well = _is_well(trouble, config, facts)
    if is_well is None:
        return NeedsEvidence()
    return _begin(state, replace(trouble, is_well=is_well), config, found, facts)


def _halve(state: DeliveryState, trouble: Trouble, config: SubscriptionConfig, found: Found, facts: Facts) -> Try:
    """The lower half of records that are known to fail."""
    middle = len(found.records) // 2
    lower = Found(records=found.records[:middle], end=found.records[middle].offset)
    return _begin(state, replace(trouble, failing_end=found.end, is_split=True), config, lower, facts)


def _begin(state: DeliveryState, trouble: Trouble, config: SubscriptionConfig, found: Found, facts: Facts) -> Try:
    """Counts the attempt. Where nothing is known to fail, the time of the first failure begins with it."""
    is_same = trouble.try_end == found.end
    has_failed = is_same and trouble.attempts > 0  # with an answer, or with the function
    trouble = replace(
        trouble,
        failing_end=found.end if has_failed else trouble.failing_end,
        try_end=found.end,
        attempts=trouble.attempts + 1 if is_same else 1,
        first_failed_ms=facts.now_ms if trouble.failing_end is None and not has_failed else trouble.first_failed_ms,
    )
    return Try(state=changed(state, trouble=trouble), end=found.end, is_alone=_is_alone(config, found))


def _failed(
    state: DeliveryState, config: SubscriptionConfig, trouble: Trouble, now_ms: int, *, is_alone: bool
) -> DeliveryState:
    """Notes a failure that counts. Where halves or the dead letters are next, they need no pause."""
    leads_on = trouble.is_well or not (trouble.is_broken or is_alone)
    is_at_once = leads_on and trouble.attempts >= _attempts_max(config, trouble, is_alone)
    if is_alone and config.dead_letter_topic is None:
        is_at_once = False
    pause_now_ms = 0 if is_at_once else pause_ms(config, trouble.attempts)
    return changed(state, trouble=trouble, next_try_ms=now_ms + pause_now_ms if pause_now_ms else 0)


def _attempts_max(config: SubscriptionConfig, trouble: Trouble, is_alone: bool) -> int:
    if trouble.is_split and not is_alone:
        return 1
    return PUSH_ATTEMPTS_DEFAULT if config.attempts_max is None else config.attempts_max


def _is_well(trouble: Trouble, config: SubscriptionConfig, facts: Facts) -> bool | None:
    """True if the target works, or the patience is over. None if the last success must be read."""
    if trouble.is_well or facts.now_ms - trouble.first_failed_ms >= config.patience_ms:
        return True
    if facts.proof_ms is None:
        return None
    return facts.proof_ms > trouble.first_failed_ms + PUSH_EVIDENCE_MARGIN_MS


def _is_alone(config: SubscriptionConfig, found: Found) -> bool:
    return len(found.records) == 1 or not config.bisect


def _bound(trouble: Trouble) -> Offset:
    return trouble.try_end or trouble.failing_end or trouble.range_end


def _upto(found: Found, end: Offset) -> Found:
    return found if end >= found.end else Found(records=[each for each in found.records if each.offset < end], end=end)


def _old_records(found: Found, config: SubscriptionConfig, now_ms: int) -> int:
    """The number of records that are too old, of those in front. A record without a time has no age."""
    if config.age_ms_max is None:
        return 0
    oldest_ms = now_ms - config.age_ms_max
    return next(
        (at for at, each in enumerate(found.records) if not 0 <= each.timestamp_ms < oldest_ms), len(found.records)
    )


def _bury(found: Found, records: int) -> Bury:
    records = min(records, DEAD_LETTERS_AT_ONCE)
    return Bury(end=found.records[records].offset if records < len(found.records) else found.end)
