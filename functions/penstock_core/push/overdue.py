"""Decides whether a lane needs a message from the look that runs each five minutes. Pure.

A message that is lost, or an event that never came, leaves records that nothing will deliver. A lane that is held, or
whose message sleeps, has its message (lane.py), unless that one is overdue. The look must not add to a queue that is
merely slow: it gives each message twice the time in which SQS shows it again.
"""

from penstock_core.limits import PUSH_VISIBILITY_MS
from penstock_core.push.lane import FREE, NO_MESSAGE, LaneState

_SLOW_MS = 2 * PUSH_VISIBILITY_MS


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
