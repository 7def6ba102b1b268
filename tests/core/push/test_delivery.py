from dataclasses import replace

import pytest

from penstock_core.ids import Offset
from penstock_core.limits import PUSH_ERROR_LENGTH_MAX
from penstock_core.push.batch import Failure
from penstock_core.push.delivery import (
    DeliveryState,
    Trouble,
    begin,
    commit,
    end_of_try,
    fail,
    fail_record,
    pause,
)

NOW_MS = 1_000_000
NEW = DeliveryState(offset=Offset(10))


def test_pause_holds_until_its_time() -> None:
    assert pause(NEW, NOW_MS) == DeliveryState(offset=Offset(10), version=2, next_try_ms=NOW_MS)


def test_begin_writes_nothing_while_all_is_well() -> None:
    assert begin(NEW, Offset(20)) is NEW


def test_commit_moves_the_offset_and_raises_the_version() -> None:
    state = commit(NEW, Offset(15), NOW_MS + 7)
    assert (state.offset, state.succeeded_ms, state.version) == (15, NOW_MS + 7, NEW.version + 1)


@pytest.mark.parametrize("offset", [9, 10])
def test_commit_never_goes_back(offset: int) -> None:
    with pytest.raises(ValueError, match="commit of offset"):
        commit(NEW, Offset(offset), NOW_MS)


def test_first_failure_counts_one_attempt() -> None:
    state = fail(NEW, Failure.REFUSAL, Offset(20), "x" * 1_000, NOW_MS)
    assert state.trouble == Trouble(
        first_failed_ms=NOW_MS,
        failing_end=Offset(20),
        try_end=Offset(20),
        attempts=1,
        error="x" * PUSH_ERROR_LENGTH_MAX,
    )
    assert end_of_try(state, Offset(50)) == 20
    assert end_of_try(state, Offset(12)) == 12


def test_outage_counts_no_attempt() -> None:
    state = fail(NEW, Failure.AWAY, Offset(20), "away", NOW_MS)
    state = fail(begin(state, Offset(20)), Failure.AWAY, Offset(20), "away", NOW_MS + 1)
    assert state.trouble is not None
    assert (state.trouble.attempts, state.trouble.outages, state.trouble.first_failed_ms) == (0, 2, NOW_MS)
    state = fail(begin(state, Offset(20)), Failure.REFUSAL, Offset(20), "no", NOW_MS + 2)
    assert state.trouble is not None
    assert (state.trouble.attempts, state.trouble.outages) == (1, 0)


def test_part_that_succeeds_leaves_the_rest_of_its_batch_to_be_tried() -> None:
    split = Trouble(first_failed_ms=1, failing_end=Offset(20), try_end=Offset(15), attempts=1, is_split=True)
    state = commit(replace(NEW, trouble=split), Offset(15), NOW_MS)
    assert state.trouble == replace(split, try_end=Offset(20), attempts=0)
    assert commit(state, Offset(20), NOW_MS).trouble is None


def test_record_that_the_target_names_is_tried_alone() -> None:
    state = fail_record(NEW, "bad", NOW_MS)
    assert state.trouble is not None
    assert (end_of_try(state, Offset(50)), state.trouble.attempts) == (11, 1)
    again = fail_record(begin(state, Offset(11)), "bad", NOW_MS + 1)
    assert again.trouble is not None
    assert (again.trouble.attempts, again.trouble.first_failed_ms) == (2, NOW_MS)


def test_other_record_that_the_target_names_begins_with_one_attempt() -> None:
    state = fail_record(NEW, "bad", NOW_MS)
    state = commit(begin(state, Offset(11)), Offset(11), NOW_MS)
    batch = fail(state, Failure.REFUSAL, Offset(30), "", NOW_MS)
    named = fail_record(begin(commit(batch, Offset(12), NOW_MS), Offset(30)), "bad", NOW_MS)
    assert named.trouble is not None
    assert (named.offset, named.trouble.attempts, named.trouble.try_end) == (12, 1, 13)
