import pytest

from penstock_core.limits import PUSH_VISIBILITY_MS
from penstock_core.push.delivery import needs_message
from penstock_core.push.lane import LaneState

NOW_MS = 1_790_000_000_000
SLOW_MS = 2 * PUSH_VISIBILITY_MS


def held(locked_until_ms: int, **changes: object) -> LaneState:
    return LaneState(version=1, holder="m-1", nonce="n", locked_until_ms=locked_until_ms, **changes)  # type: ignore[arg-type]  # fields of many types


def sleeping(due_ms: int) -> LaneState:
    return LaneState(version=1, sleeper="m-1", due_ms=due_ms)


@pytest.mark.parametrize("lane", [None, LaneState(version=2)])
def test_lane_without_a_message_needs_one(lane: LaneState | None) -> None:
    assert needs_message(lane, 0, NOW_MS)


def test_held_lane_has_its_message_until_that_is_overdue() -> None:
    """The message of a holder that died comes again, though late where the queue is slow."""
    assert not needs_message(held(NOW_MS + 1), 0, NOW_MS)
    assert not needs_message(held(NOW_MS - SLOW_MS + 1), 0, NOW_MS)
    assert needs_message(held(NOW_MS - SLOW_MS), 0, NOW_MS)


def test_sleeper_does_not_stand_for_a_holder_that_is_lost() -> None:
    assert needs_message(held(NOW_MS - SLOW_MS, sleeper="m-2", due_ms=NOW_MS + 1), 0, NOW_MS)


def test_sleeper_stands_for_the_lane_until_it_is_overdue() -> None:
    assert not needs_message(sleeping(NOW_MS - SLOW_MS + 1), 0, NOW_MS)
    assert needs_message(sleeping(NOW_MS - SLOW_MS), 0, NOW_MS)


def test_sleeper_does_not_stand_for_work_that_may_begin_long_before() -> None:
    later_ms = NOW_MS + 10 * SLOW_MS
    assert not needs_message(sleeping(later_ms), later_ms, NOW_MS)
    assert needs_message(sleeping(later_ms), 0, NOW_MS)
    assert not needs_message(sleeping(NOW_MS + SLOW_MS), 0, NOW_MS)
