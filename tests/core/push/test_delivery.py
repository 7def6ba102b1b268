from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_WINDOW_LOOK_MS, PUSH_WINDOW_LOOKS_MAX
from penstock_core.push.delivery import (
    DeliveryState,
    Trouble,
    Waiting,
    Window,
    commit,
    is_open,
    move,
    pass_expired,
    pause,
    skip,
    wait_for_more,
    waiting,
)
from penstock_core.push.subscription import SubscriptionConfig

NOW_MS = 1_000_000
NEW = DeliveryState(offset=Offset(10), succeeded_ms=7)
PART = Trouble(
    first_failed_ms=1,
    range_end=Offset(40),
    failing_end=Offset(20),
    try_end=Offset(15),
    attempts=1,
    is_split=True,
    error="bad",
)
FAILING = replace(NEW, trouble=PART)
WINDOW_MS = 300_000
CONFIG = SubscriptionConfig(batch_window_ms=WINDOW_MS, batch_records=1_000)
START = DeliveryState(offset=Offset(0))


def test_pause_holds_until_its_time() -> None:
    assert pause(NEW, NOW_MS) == replace(NEW, version=2, next_try_ms=NOW_MS)


def test_commit_moves_the_offset_and_notes_the_success() -> None:
    state = commit(replace(NEW, next_try_ms=5), Offset(15), NOW_MS - 7, NOW_MS)
    assert state == DeliveryState(offset=Offset(15), version=2, succeeded_ms=NOW_MS, proof_ms=NOW_MS - 7)


def test_skip_moves_the_offset_and_is_no_success() -> None:
    assert skip(replace(NEW, next_try_ms=5), Offset(15)) == DeliveryState(offset=Offset(15), version=2, succeeded_ms=7)


@pytest.mark.parametrize("offset", [9, 10])
def test_offset_never_goes_back(offset: int) -> None:
    with pytest.raises(ValueError, match="after 10"):
        commit(NEW, Offset(offset), NOW_MS - 7, NOW_MS)
    with pytest.raises(ValueError, match="after 10"):
        skip(NEW, Offset(offset))


def test_part_that_succeeds_leaves_the_rest_of_its_range_failing() -> None:
    assert commit(FAILING, Offset(15), NOW_MS - 7, NOW_MS).trouble == replace(
        PART, try_end=None, attempts=0, outages=0, is_well=True
    )


def test_records_skipped_before_a_part_change_nothing_of_it() -> None:
    assert skip(FAILING, Offset(12)).trouble == PART


def test_part_that_is_skipped_leaves_the_rest_of_its_range_failing() -> None:
    assert skip(FAILING, Offset(15)).trouble == replace(PART, try_end=None, attempts=0)


@pytest.mark.parametrize("offset", [20, 39])
def test_rest_of_the_batch_is_suspected_behind_the_failing_range(offset: int) -> None:
    """They have not failed as the failing range did, so its error tells nothing of them."""
    left = Trouble(first_failed_ms=1, range_end=Offset(40), is_split=True)
    assert commit(FAILING, Offset(offset), NOW_MS - 7, NOW_MS).trouble == replace(left, is_well=True)
    assert skip(FAILING, Offset(offset)).trouble == left


@pytest.mark.parametrize("leave", [skip, lambda state, offset: commit(state, offset, NOW_MS, NOW_MS)])
def test_outage_of_a_part_is_no_error_of_the_rest_of_its_range(
    leave: Callable[[DeliveryState, Offset], DeliveryState],
) -> None:
    away = leave(replace(FAILING, trouble=replace(PART, outages=2, error="429")), Offset(15))
    assert away.trouble is not None
    assert away.trouble.error == ""


@pytest.mark.parametrize("offset", [40, 41])
def test_trouble_ends_with_its_batch(offset: int) -> None:
    assert commit(FAILING, Offset(offset), NOW_MS - 7, NOW_MS).trouble is None
    assert skip(FAILING, Offset(offset)).trouble is None


def test_move_counts_dead_letters_and_is_no_success() -> None:
    moved = move(replace(FAILING, dead_lettered=3), Offset(12), 2)
    assert moved == replace(skip(FAILING, Offset(12)), dead_lettered=5)


def test_window_ends_with_each_change() -> None:
    waits = replace(NEW, window=Window(began_ms=1, seen_offset=Offset(12), quiet_until_ms=2))
    for state in (commit(waits, Offset(15), NOW_MS - 7, NOW_MS), skip(waits, Offset(15)), pause(waits, NOW_MS)):
        assert state.window is None


def begun(now_ms: int = 1_000, window_ms: int = WINDOW_MS) -> DeliveryState:
    state = wait_for_more(START, window_ms, Offset(1), 0.01, now_ms)
    assert state is not None
    return state


def look(state: DeliveryState, fill: float, now_ms: int, seen: int = 2) -> DeliveryState:
    after = wait_for_more(state, WINDOW_MS, Offset(seen), fill, now_ms)
    assert after is not None
    return after


def test_first_append_in_a_window_is_looked_at_at_once() -> None:
    state = begun()
    assert waiting(state, CONFIG, Offset(1), 1_000) == Waiting(end_ms=301_000, look_ms=None)
    assert waiting(state, CONFIG, Offset(2), 1_000) is None


def test_look_is_followed_by_a_quiet_time_in_which_appends_cause_none() -> None:
    state = look(begun(), 0.01, 21_000)
    assert waiting(state, CONFIG, Offset(2), 21_001) == Waiting(end_ms=301_000, look_ms=None)
    assert waiting(state, CONFIG, Offset(3), 21_001) == Waiting(end_ms=301_000, look_ms=41_000)
    assert waiting(state, CONFIG, Offset(3), 41_000) is None


@pytest.mark.parametrize(
    ("fill", "quiet_ms"),
    [(0.8, 5_000), (0.5, 20_000), (0.001, 20_000), (0.0, 20_000), (0.9999, PUSH_WINDOW_LOOK_MS)],
)
def test_next_look_is_when_the_batch_may_be_full(fill: float, quiet_ms: int) -> None:
    state = look(begun(), fill, 21_000)
    assert state.window is not None
    assert state.window.quiet_until_ms == 21_000 + quiet_ms


@given(st.lists(st.floats(0.0, 0.999), min_size=40, max_size=40), st.integers(1, WINDOW_MS), st.integers(1, 500))
def test_looks_at_one_batch_are_bounded_and_end_with_the_window(
    fills: list[float], window_ms: int, batch_records: int
) -> None:
    state, now_ms, looks = begun(window_ms=window_ms), 1_000, 0
    config = replace(CONFIG, batch_window_ms=window_ms, batch_records=batch_records)
    for seen, fill in enumerate(fills, start=2):
        wait = waiting(state, config, Offset(seen), now_ms)  # records come all the time
        if wait is not None:
            assert wait.look_ms is not None
            assert now_ms < wait.look_ms <= wait.end_ms == 1_000 + window_ms
            now_ms = wait.look_ms
        after = wait_for_more(state, window_ms, Offset(seen), fill, now_ms)
        if after is None:
            assert now_ms >= 1_000 + window_ms
            break
        state, looks = after, looks + 1
    else:
        raise AssertionError("the window never ended")
    assert looks <= PUSH_WINDOW_LOOKS_MAX


def test_enough_records_end_a_quiet_time_unless_a_filter_may_not_take_them() -> None:
    state = look(begun(), 0.01, 21_000)
    assert waiting(state, CONFIG, Offset(999), 21_001) is not None
    assert waiting(state, CONFIG, Offset(1_000), 21_001) is None
    assert waiting(state, replace(CONFIG, filter={"kind": ["a"]}), Offset(1_000), 21_001) is not None


def test_window_that_was_made_shorter_or_taken_away_ends_sooner() -> None:
    state = begun()
    assert waiting(state, replace(CONFIG, batch_window_ms=5_000), Offset(1), 5_999) == Waiting(
        end_ms=6_000, look_ms=None
    )
    assert waiting(state, replace(CONFIG, batch_window_ms=5_000), Offset(1), 6_000) is None
    assert waiting(state, replace(CONFIG, batch_window_ms=0), Offset(1), 1_000) is None
    assert wait_for_more(state, 5_000, Offset(1), 0.1, 6_000) is None


def test_window_that_an_older_release_left_in_place_is_over() -> None:
    state = begun()
    trouble = Trouble(first_failed_ms=1, range_end=Offset(9))
    assert is_open(state)
    assert not is_open(replace(state, next_try_ms=0))
    assert not is_open(replace(state, trouble=trouble))
    assert not is_open(pause(state, 5))


def test_pass_expired_counts_and_lets_the_rest_begin_with_attempts_of_its_own() -> None:
    passed = pass_expired(FAILING, Offset(12), 2)
    assert (passed.offset, passed.version, passed.expired) == (12, FAILING.version + 1, 2)
    assert passed.trouble == replace(PART, try_end=None, attempts=0)
    assert pass_expired(passed, Offset(40), 28) == replace(skip(passed, Offset(40)), expired=30)
    assert pass_expired(FAILING, Offset(12), 0) == skip(FAILING, Offset(12)), "a filter has taken them"
