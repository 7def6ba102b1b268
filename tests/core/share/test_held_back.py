"""What partitions of older generations hold back."""

from dataclasses import replace

from penstock_core.ids import LockId, Offset
from penstock_core.log.index import EMPTY_HEAD
from penstock_core.share.held_back import NOTHING_HELD, HeldBack, held_back
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import Lock, ShareState, Wait

CLOSED = replace(EMPTY_HEAD, next_offset=Offset(9), closed_ms=500, closed_offset=Offset(7))


def test_partition_without_a_state_holds_all_back() -> None:
    assert held_back([(CLOSED, None)]) == HeldBack(is_all=True, closed_ms=500)


def test_empty_partition_holds_nothing_back() -> None:
    assert held_back([(replace(EMPTY_HEAD, closed_ms=500, closed_offset=Offset(0)), None)]) == NOTHING_HELD
    assert not NOTHING_HELD


def test_partition_whose_records_are_gone_holds_nothing_back() -> None:
    assert held_back([(replace(CLOSED, log_start_offset=Offset(7)), None)]) == NOTHING_HELD


def test_position_at_the_place_of_the_closing_is_enough() -> None:
    assert held_back([(CLOSED, ShareState(position=Offset(7)))]) == NOTHING_HELD
    assert held_back([(CLOSED, ShareState(position=Offset(6)))]).is_all


def test_keys_of_locks_and_waits_are_held() -> None:
    lock = Lock(Offset(2), 900, 1, RecordSet(((0, 2),), (11, 12)))
    wait = Wait(0, 1, RecordSet(((5, 6),), (13,)))
    state = ShareState(position=Offset(7), open=3, locks={LockId("nonce-01.0"): lock}, waits={Offset(5): wait})
    assert held_back([(CLOSED, state)]) == HeldBack(keys=frozenset({11, 12, 13}), closed_ms=500)


def test_records_without_order_are_not_held() -> None:
    """Without a key, behind the closing, below the log start, and on their way to the dead-letter topic."""
    waits = {
        Offset(0): Wait(0, 1, RecordSet(((0, 1),), (11,))),
        Offset(2): Wait(0, 1, RecordSet(((2, 3),), (0,))),
        Offset(3): Wait(0, 1, RecordSet(((3, 4),), (12,)), is_rejected=True),
        Offset(4): Wait(0, 5, RecordSet(((4, 5),), (13,)), is_dead=True),
        Offset(8): Wait(0, 1, RecordSet(((8, 9),), (14,))),
    }
    head = replace(CLOSED, log_start_offset=Offset(1))
    assert held_back([(head, ShareState(position=Offset(9), open=5, waits=waits))]) == NOTHING_HELD


def test_what_several_partitions_hold_adds_up() -> None:
    wait = {Offset(5): Wait(0, 1, RecordSet(((5, 6),), (13,)))}
    later = replace(CLOSED, closed_ms=800)
    found = held_back([(CLOSED, ShareState(position=Offset(7), open=1, waits=wait)), (later, None)])
    assert found == HeldBack(is_all=True, keys=frozenset({13}), closed_ms=800)
