from dataclasses import replace

import pytest

from penstock_core.ids import LockId, Offset
from penstock_core.share.draft import ShareOutcome, ShareUpdate, apply, arming
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import AT_POSITION, Lock, ShareState, Wait

LOCK = Lock(Offset(4), 9, 1, RecordSet(((0, 2),)))
WAIT = Wait(9, 1, RecordSet(((8, 9),)))
A, B = LockId("a.0"), LockId("b.0")
STATE = ShareState(generation=2, position=Offset(10), open=3, locks={A: LOCK}, waits={Offset(8): WAIT}, waiter_ms=5)
PLAIN = ShareUpdate(generation=2, advance=1)


def test_update_without_conditions_applies() -> None:
    assert apply(STATE, PLAIN) == replace(STATE, position=Offset(11))
    assert apply(None, PLAIN) is None


@pytest.mark.parametrize(
    "refused",
    [
        replace(PLAIN, generation=1),
        replace(PLAIN, expected_locks={A: None}),
        replace(PLAIN, expected_locks={B: LOCK}),
        replace(PLAIN, expected_locks={A: replace(LOCK, base=Offset(5))}),
        replace(PLAIN, expected_locks={A: replace(LOCK, deliveries=2)}),
        replace(PLAIN, expected_waits={Offset(8): None}),
        replace(PLAIN, expected_waits={Offset(8): replace(WAIT, is_rejected=True)}),
        replace(PLAIN, expected_waits={Offset(4): WAIT}),
        replace(PLAIN, position_between=(11, 20)),
        replace(PLAIN, position_between=(0, 9)),
        replace(PLAIN, open_max=2),
        replace(PLAIN, locks_max=0),
    ],
)
def test_update_is_refused_when_a_condition_does_not_hold(refused: ShareUpdate) -> None:
    assert apply(STATE, refused) is None


def test_update_applies_when_every_condition_holds_at_its_bound() -> None:
    update = replace(
        PLAIN,
        expected_locks={A: LOCK, B: None},
        expected_waits={Offset(8): WAIT, Offset(4): None},
        position_between=(10, 10),
        open_max=3,
        locks_max=1,
    )
    assert apply(STATE, update) == replace(STATE, position=Offset(11))


def test_new_lock_gets_the_position_before_the_change() -> None:
    update = ShareUpdate(generation=2, locks={B: replace(LOCK, base=AT_POSITION)}, advance=2, open_delta=2)
    after = apply(STATE, update)
    assert after is not None
    assert after.locks == {A: LOCK, B: replace(LOCK, base=Offset(10))}
    assert (after.position, after.open) == (12, 5)


def test_entries_are_set_and_removed() -> None:
    moved = Wait(1, 1, RecordSet(((4, 6),)))
    update = ShareUpdate(
        generation=2, locks={A: None, B: None}, waits={Offset(8): None, Offset(4): moved}, open_delta=-1
    )
    after = apply(STATE, update)
    assert after is not None
    assert (after.locks, after.waits, after.open) == ({}, {Offset(4): moved}, 2)


def test_expired_records_are_added_up() -> None:
    once = apply(STATE, ShareUpdate(generation=2, expired=3))
    assert once == replace(STATE, expired=3)
    assert apply(once, ShareUpdate(generation=2, expired=4)) == replace(STATE, expired=7)


def test_waiter_is_armed_and_taken() -> None:
    taken = apply(STATE, ShareUpdate(generation=2, takes_waiter=True))
    assert taken is not None
    assert taken.waiter_ms is None
    armed = apply(taken, arming(taken, 77))
    assert armed == replace(STATE, waiter_ms=77)


def test_outcome_tells_whether_a_waiter_was_taken() -> None:
    without = replace(STATE, waiter_ms=None)
    assert ShareOutcome(before=STATE, after=without).took_waiter
    assert not ShareOutcome(before=without, after=without).took_waiter
    assert not ShareOutcome(before=STATE, after=STATE).took_waiter
    refused = ShareOutcome(before=STATE, after=None)
    assert (refused.took_waiter, refused.is_applied) == (False, False)
