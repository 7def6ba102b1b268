"""Decides what follows a failure: another attempt, a part of the batch, or the dead letters. Pure.

A batch that fails gets all its attempts. Then it is halved again and again, and each part gets one attempt, until one
record is left. That record costs at most `2 * log2(batch)` attempts beyond those of the batch.
"""

from dataclasses import dataclass, replace

from penstock_core.ids import Offset
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.push.subscription import SubscriptionConfig

_DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The facts beside the state when a delivery has failed.

    `succeeded_ms` is the last success of any partition of the subscription. The records of the failing range below
    `old_end` are older than `age_ms_max`; it is the range's first offset if none is.
    """

    now_ms: int
    succeeded_ms: int
    old_end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """`state` is tried again after `pause_ms`; 0 is at once."""

    state: DeliveryState
    pause_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """The records up to `state.offset` go to the dead-letter topic, in one transaction with `state`."""

    state: DeliveryState


def next_attempt(state: DeliveryState, config: SubscriptionConfig, evidence: Evidence) -> Again | Bury:
    """The step after the failure that `state` notes.

    Records go to the dead letters only after their attempts, and only if the target works: it has had a success since
    they first failed, or `patience_ms` has passed. Records that are too old go there in any case.
    """
    trouble = state.trouble
    if trouble is None or trouble.try_end is None:
        return Again(state=state, pause_ms=0)
    if config.dead_letter_topic is not None and evidence.old_end > state.offset:
        return _bury(state, evidence.old_end)
    if trouble.outages:
        return Again(state=state, pause_ms=pause_ms(config, trouble.outages))
    attempts_max = 1 if trouble.is_split else config.attempts_max
    if attempts_max is None or trouble.attempts < attempts_max:
        return Again(state=state, pause_ms=pause_ms(config, trouble.attempts))
    if config.bisect and trouble.try_end - state.offset > 1:
        return Again(state=_halved(state, trouble, trouble.try_end), pause_ms=0)
    is_target_well = max(state.succeeded_ms, evidence.succeeded_ms) > trouble.first_failed_ms
    if is_target_well or evidence.now_ms - trouble.first_failed_ms >= config.patience_ms:
        return _bury(state, trouble.try_end)
    return Again(state=state, pause_ms=pause_ms(config, trouble.attempts))


def pause_ms(config: SubscriptionConfig, failures: int) -> int:
    """The pause after so many failures in a row. It has no jitter: one delivery of a partition waits, not a crowd."""
    return min(config.backoff_ms_max, config.backoff_ms_min << min(max(failures - 1, 0), _DOUBLINGS_MAX))


def _halved(state: DeliveryState, trouble: Trouble, end: Offset) -> DeliveryState:
    middle = Offset(state.offset + (end - state.offset) // 2)
    return replace(state, trouble=replace(trouble, failing_end=end, try_end=middle, attempts=0, is_split=True))


def _bury(state: DeliveryState, end: Offset) -> Bury:
    return Bury(state=replace(state, version=state.version + 1, offset=end, next_try_ms=0, trouble=None))
