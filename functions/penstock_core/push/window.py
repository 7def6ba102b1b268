"""The window in which a batch that is not full waits for more records. Pure.

The head is armed meanwhile, so an append wakes the lane, which looks whether the batch is full. Each look is noted. The
next one follows when the batch may be full, by the rate at which it was filled. It comes after twice the time at most:

```
 began ──look──▶ quiet ──look──────▶ quiet ──look──────────────▶ … ──▶ end: the batch goes as it is
           └─ full: the batch goes at once
```
So a batch is looked at `PUSH_WINDOW_LOOKS_MAX` times at most, however many appends come. A quiet time with new records
ends by a message, and one without them by the next append. A delivery that comes in a quiet time reads no records, but
it sees by the head if there are enough of them.

Decides whether a lane needs a message from the look that runs each five minutes. Pure.

A message that is lost, or an event that never came, leaves records that nothing will deliver. A lane that is held, or
whose message sleeps, has its message (lane.py), unless that one is overdue. The look must not add to a queue that is
merely slow: it gives each message twice the time in which SQS shows it again.
"""

from dataclasses import dataclass

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_VISIBILITY_MS, PUSH_WINDOW_LOOK_MS, PUSH_WINDOW_LOOKS_MAX
from penstock_core.push.delivery import DeliveryState, Window, changed
from penstock_core.push.lane import FREE, NO_MESSAGE, LaneState
from penstock_core.push.subscription import SubscriptionConfig

_SLOW_MS = 2 * PUSH_VISIBILITY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A batch waits until `end_ms`. It is looked at before: at `look_ms`, or after the next append if that is None."""

    end_ms: int
    look_ms: int | None


def is_open(state: DeliveryState) -> bool:
    """True if a batch waits. An older release moves the offset, or notes a failure, and leaves the window in place."""
    return state.window is not None and state.trouble is None and state.next_try_ms != 0


def waiting(state: DeliveryState, config: SubscriptionConfig, next_offset: Offset, now_ms: int) -> Waiting | None:
    """The wait of a batch. None if no batch waits, or it is time for a look, or for the batch.

    `next_offset` is that of the head, and `config` the settings as they are now.
    """
    window = state.window
    if window is None or not is_open(state):
        return None
    end_ms = _end_ms(state, window, config.batch_window_ms)
    if now_ms >= end_ms:
        return None
    if next_offset <= window.seen_offset:
        return Waiting(end_ms=end_ms, look_ms=None)
    has_enough = config.filter is None and next_offset - state.offset >= config.batch_records
    if has_enough and window.looks < PUSH_WINDOW_LOOKS_MAX:
        return None
    return Waiting(end_ms=end_ms, look_ms=window.quiet_until_ms) if now_ms < window.quiet_until_ms else None


def wait_for_more(state: DeliveryState, window_ms: int, seen: Offset, fill: float, now_ms: int) -> DeliveryState | None:
    """The state that waits, after a look at a batch that is not full. None if its window is over.

    The look has seen the records below `seen`. `fill` is the part of the batch that is there, below 1.
    """
    window = state.window
    if window is None or not is_open(state):
        begun = Window(began_ms=now_ms, seen_offset=seen, quiet_until_ms=now_ms)
        return changed(state, window=begun, next_try_ms=now_ms + window_ms)
    end_ms = _end_ms(state, window, window_ms)
    if now_ms >= end_ms:
        return None
    looks = window.looks + 1
    quiet_until_ms = end_ms if looks >= PUSH_WINDOW_LOOKS_MAX else now_ms + _quiet_ms(now_ms - window.began_ms, fill)
    looked = Window(began_ms=window.began_ms, seen_offset=seen, quiet_until_ms=min(end_ms, quiet_until_ms), looks=looks)
    return changed(state, window=looked, next_try_ms=end_ms)


def _quiet_ms(elapsed_ms: int, fill: float) -> int:
    """The time until the batch may be full: at the rate so far, but no longer than it has taken so far."""
    rest_ms = elapsed_ms if fill <= 0 else elapsed_ms * (1 - fill) / fill
    return max(PUSH_WINDOW_LOOK_MS, round(min(elapsed_ms, rest_ms)))


def _end_ms(state: DeliveryState, window: Window, window_ms: int) -> int:
    return min(state.next_try_ms, window.began_ms + window_ms)


def needs_message(lane: LaneState | None, due_ms: int, now_ms: int) -> bool:
    """True if no message stands for work of the lane that may begin at `due_ms`.

    None is a lane that was never taken. A message too many finds nothing to do.
    """
    if lane is None:
        return True
    if lane.locked_until_ms != FREE:
        return now_ms >= lane.locked_until_ms + _SLOW_MS
    if lane.sleeper == NO_MESSAGE:
        return True
    is_lost = now_ms >= lane.due_ms + _SLOW_MS
    is_too_late = lane.due_ms > max(due_ms, now_ms) + _SLOW_MS
    return is_lost or is_too_late
