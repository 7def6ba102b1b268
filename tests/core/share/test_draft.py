from dataclasses import replace

from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_ENTRIES_MAX
from penstock_core.share.draft import Draft, apply
from penstock_core.share.record_set import EMPTY, RecordSet
from penstock_core.share.share_state import AT_POSITION, Lock, ShareState, Wait

A, B = LockId("a.0"), LockId("b.0")
LOCK = Lock(Offset(4), 9, 1, RecordSet(((0, 3),)))
WAIT = Wait(9, 1, RecordSet(((8, 10),)))
STATE = ShareState(position=Offset(10), open=5, locks={A: LOCK}, waits={Offset(8): WAIT})
TWO = Lock(Offset(0), 9, 1, RecordSet(((0, 2),)))


def test_draft_without_changes_has_no_update() -> None:
    draft = Draft(STATE)
    assert draft.update() is None
    draft.put_lock(A, LOCK)
    draft.remove_wait(Offset(8))
    draft.put_wait(WAIT)
    assert draft.update() is None


def test_update_expects_exactly_the_entries_that_change() -> None:
    draft = Draft(STATE)
    draft.put_lock(A, replace(LOCK, records=RecordSet(((0, 1),))))
    update = draft.update()
    assert update is not None
    assert (update.expected_locks, update.expected_waits, update.open_delta) == ({A: LOCK}, {}, -2)
    assert update.position_between is None


def test_lock_without_records_is_removed() -> None:
    draft = Draft(STATE)
    draft.put_lock(A, replace(LOCK, records=EMPTY))
    update = draft.update()
    assert update is not None
    assert update.locks == {A: None}
    assert draft.open == 2


def test_records_that_move_between_entries_stay_open() -> None:
    draft = Draft(STATE)
    draft.put_lock(A, None)
    draft.put_wait(Wait(9, 1, RecordSet(((4, 7),))))
    update = draft.update()
    assert update is not None
    assert update.open_delta == 0
    assert update.expected_waits == {Offset(4): None}
    after = apply(STATE, update)
    assert after is not None
    assert after.unfinished() == STATE.unfinished()


def test_fresh_records_may_be_anywhere_between_log_start_and_end() -> None:
    draft = Draft(STATE)
    draft.hand_out_fresh(B, TWO, 3, 90)
    draft.bound(7, 100)
    update = draft.update()
    assert update is not None
    assert (update.position_between, update.advance, update.open_delta) == ((3, 88), 2, 2)
    assert (update.locks_max, update.open_max) == (6, 98)
    assert update.locks == {B: replace(TWO, base=AT_POSITION)}


def test_fresh_records_begin_at_the_log_start_when_the_position_is_below_it() -> None:
    draft = Draft(STATE)
    draft.hand_out_fresh(B, TWO, 50, 90)
    update = draft.update()
    assert update is not None
    assert (update.position_between, update.advance, update.open_delta) == ((10, 10), 42, 2)
    assert update.locks == {B: replace(TWO, base=Offset(50))}


def test_passing_over_expects_the_position_as_read() -> None:
    draft = Draft(STATE)
    draft.pass_over(5)
    update = draft.update()
    assert update is not None
    assert (update.position_between, update.advance) == ((10, 10), 5)


def test_room_counts_entries_once() -> None:
    draft = Draft(STATE)
    draft.put_lock(A, None)
    draft.put_lock(A, LOCK)
    draft.remove_wait(Offset(8))
    assert draft.room() == SHARE_ENTRIES_MAX - 2
