from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock_core.ids import Offset
from penstock_core.push.delivery import DeliveryState, Trouble, Window, commit, move, pause, skip

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
