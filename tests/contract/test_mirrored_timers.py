"""The contract of the stores for copies of timers: what a push settles, and what no delivery writes."""

from dataclasses import replace

import pytest

from penstock_core.ids import Offset
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.index import HeldHead
from penstock_core.log.timer import Timer, TimerState, delivered
from penstock_core.mirror.push import MirrorAppend
from tests.contract.conftest import Ports
from tests.contract.test_log_index import KEY, OTHER, ref
from tests.support.timers import timer_at, waiting

NOW = 2_000_000


@pytest.fixture
def held(ports: Ports) -> Ports:
    ports.log.create_head(KEY, True, HeldHead(mirror="dr", closed_ms=5))
    return ports


def copy(number: int = 0) -> Timer:
    return replace(timer_at(KEY, 1_000, number), is_copy=True)


def append(base: int, *marked: Timer) -> MirrorAppend:
    return MirrorAppend(
        mirror="dr",
        log_id="l1",
        base_offset=Offset(base),
        refs=(ref(1),),
        producers={},
        marks=[delivered(each, NOW) for each in marked],
    )


def states(ports: Ports, *timers: Timer) -> list[TimerState | None]:
    found = [ports.timers.get(KEY, each.place) for each in timers]
    return [None if each is None else each.state for each in found]


def test_copy_is_read_as_it_was_put(held: Ports) -> None:
    assert held.timers.put(copy()) == copy()
    assert held.timers.get(KEY, copy().place) == copy()
    assert list(waiting(held.timers, KEY, 0, 9_000, 9)) == [copy()]


def test_append_puts_the_marks_of_its_timers_whether_copies_are_there_or_not(held: Ports) -> None:
    known, unknown, other = copy(0), copy(1), copy(2)
    held.timers.put(known)
    held.timers.put(other)
    done = held.log.append_mirrored(KEY, append(0, known, unknown), 0b100)
    assert done is not None
    assert (done.is_appended, done.took_waiter, done.head.next_offset) == (True, True, ref(1).offset_span)
    assert done.head == held.log.heads([KEY])[KEY]
    assert states(held, known, unknown, other) == [TimerState.DELIVERED, TimerState.DELIVERED, TimerState.WAITING]
    assert held.timers.put(unknown).state is TimerState.DELIVERED, "a late copy meets the mark"


def test_refused_append_settles_nothing(held: Ports) -> None:
    timer = copy()
    held.timers.put(timer)
    late = held.log.append_mirrored(KEY, append(9, timer), 0)
    assert late is not None
    assert not late.is_appended
    other_log = append(0, timer)
    assert held.log.append_mirrored(KEY, replace(other_log, mirror="other"), 0) is not None
    held.log.promote(KEY, "dr", 1, None)
    promoted = held.log.append_mirrored(KEY, append(0, timer), 0)
    assert promoted is not None
    assert not promoted.is_appended
    assert states(held, timer) == [TimerState.WAITING]
    assert held.log.append_mirrored(OTHER, append(0, timer), 0) is None


def test_delivery_writes_no_head_of_a_mirror(held: Ports) -> None:
    timer = copy()
    held.timers.put(timer)
    delivery = Delivery(key=KEY, timers=[timer], now_ms=NOW)
    assert held.timers.promote(delivery) is DeliveryOutcome.MOVED
    assert states(held, timer) == [TimerState.WAITING]
    held.log.promote(KEY, "dr", 1, None)
    assert held.timers.promote(delivery) is DeliveryOutcome.DONE
    assert states(held, timer) == [TimerState.DELIVERED]


def test_notes_of_timers_are_found_by_their_refs(ports: Ports) -> None:
    first, second = timer_at(KEY, 1_000, 0), timer_at(KEY, 2_000, 1)
    assert ports.timers.find_told(KEY, []) == {}
    ports.timers.note_told(first)
    ports.timers.note_told(first)
    assert ports.timers.find_told(KEY, [first.ref, second.ref]) == {first.ref: first.place}
    assert ports.timers.find_told(OTHER, [first.ref]) == {}
    moved = replace(first.ref, segment_id=second.ref.segment_id, position=77)
    assert ports.timers.find_told(KEY, [moved]) == {}
