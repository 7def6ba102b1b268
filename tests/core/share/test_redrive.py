"""The plan of a redrive: what is open, and what an update says that has moved."""

from penstock_core.ids import LockId, Offset
from penstock_core.limits import REDRIVE_SCAN_RECORDS
from penstock_core.share.acquire import LogBounds
from penstock_core.share.draft import apply
from penstock_core.share.record_set import Ranges, RecordSet
from penstock_core.share.redrive import open_letters, plan_redrive
from penstock_core.share.share_state import Lock, ShareState, Wait
from tests.core.share.share_samples import NOW_MS


def _state(position: int, *waits: Ranges) -> ShareState:
    return ShareState(
        position=Offset(position),
        waits={Offset(each[0][0]): Wait(0, 0, RecordSet(each)) for each in waits},
    )


def _log(start: int, end: int) -> LogBounds:
    return LogBounds(log_start=Offset(start), next_offset=Offset(end))


def _moved(state: ShareState, done: Ranges, log_start: int = 0) -> ShareState:
    update = plan_redrive(state, _log(log_start, 10), done, NOW_MS)
    assert update is not None
    found = apply(state, update)
    assert found is not None
    return found


def test_letters_above_the_position_and_those_that_stayed_are_open() -> None:
    found = open_letters(_state(10, ((3, 5),)), _log(0, 12), 0, NOW_MS)
    assert (found.ranges, found.end) == (((3, 5), (10, 12)), 12)
    assert open_letters(_state(10, ((3, 5),)), _log(0, 12), 5, NOW_MS).ranges == ((10, 12),)


def test_letters_below_the_log_start_are_not_open() -> None:
    assert open_letters(_state(0), _log(4, 9), 0, NOW_MS).ranges == ((4, 9),)


def test_one_look_is_bounded_and_says_where_it_ends() -> None:
    found = open_letters(_state(0), _log(0, 2 * REDRIVE_SCAN_RECORDS), 0, NOW_MS)
    assert (found.ranges, found.end) == (((0, REDRIVE_SCAN_RECORDS),), REDRIVE_SCAN_RECORDS)


def test_letters_that_moved_are_open_no_more_and_those_between_stay_open() -> None:
    state = _moved(_state(0), ((1, 2), (4, 6)))
    assert open_letters(state, _log(0, 8), 0, NOW_MS).ranges == ((0, 1), (2, 4), (6, 8))
    state = _moved(state, ((0, 1), (2, 4), (6, 8)))
    assert open_letters(state, _log(0, 8), 0, NOW_MS).ranges == ()
    assert not state.waits


def test_letters_that_retention_removed_leave_no_entry() -> None:
    state = _moved(_state(0), ((5, 6),), log_start=5)
    assert not state.waits
    assert state.position == 6


def test_letters_under_a_lock_of_an_older_release_are_open_when_it_has_ended() -> None:
    lock = Lock(Offset(0), NOW_MS + 1, 1, RecordSet(((0, 2),)))
    state = ShareState(position=Offset(2), locks={LockId("n.0"): lock})
    assert open_letters(state, _log(0, 2), 0, NOW_MS).ranges == ()
    assert open_letters(state, _log(0, 2), 0, NOW_MS + 1).ranges == ((0, 2),)
