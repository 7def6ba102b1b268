"""The contract of push waiters: each write that raises a head's next offset takes it out, and the stream tells of it.

On DynamoDB the events are those of the log table's stream.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from penstock_core.ids import Offset
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.delivery import Delivery, DeliveryOutcome, rolling
from penstock_core.log.index import EMPTY_HEAD, Head
from penstock_core.log.wake_up import PushEvent
from penstock_core.transaction import Move
from tests.contract.conftest import Ports
from tests.contract.test_log_index import KEY, OTHER, append_sequenced, ref, sequenced
from tests.contract.test_tail_moves import a_move
from tests.contract.test_transaction_store import FIRST, NAME, transaction
from tests.support.rolling import roll
from tests.support.timers import timer_at


def head_of(ports: Ports) -> Head:
    return ports.log.heads([KEY])[KEY]


def arm_push(ports: Ports, seen: int) -> tuple[bool, Head | None]:
    return ports.log.arm_push(KEY, Offset(seen))


def event(next_offset: int) -> PushEvent:
    return PushEvent(key=KEY, next_offset=Offset(next_offset))


def commit(ports: Ports) -> None:
    assert ports.transactions.commit(transaction())


def move(ports: Ports) -> None:
    assert ports.transactions.move(Move(shares=[], refs={KEY: [ref(7), ref(8)]})).is_applied


def deliver(ports: Ports, *, is_rolling: bool) -> None:
    timers = [timer_at(KEY, 1_000, number) for number in range(TAIL_ROLL_REFS if is_rolling else 2)]
    for timer in timers:
        ports.timers.put(timer)
    plain = Delivery(key=KEY, timers=timers, now_ms=2_000)
    delivery = rolling(plain, head_of(ports)) if is_rolling else plain
    assert ports.timers.promote(delivery) is DeliveryOutcome.DONE
    assert bool(ports.log.pages(KEY, Offset(0), 9)) is is_rolling


# by name: a write, and by how much it raises the next offset
RAISING: Mapping[str, tuple[Callable[[Ports], object], int]] = {
    "append": (lambda ports: ports.log.append(KEY, ref(1), 0b100), 3),
    "append in sequence": (lambda ports: append_sequenced(ports, sequenced(1, 0)), 3),
    "commit": (commit, 6),
    "move": (move, 6),
    "delivery": (lambda ports: deliver(ports, is_rolling=False), 2),
    "rolling delivery": (lambda ports: deliver(ports, is_rolling=True), TAIL_ROLL_REFS),
}


@pytest.mark.parametrize("name", RAISING)
def test_write_that_raises_the_next_offset_takes_the_push_waiter_out_and_is_told_of(ports: Ports, name: str) -> None:
    write, span = RAISING[name]
    for key in (KEY, OTHER):
        ports.log.create_head(key)
    ports.transactions.begin_epoch(NAME, None, FIRST)
    assert arm_push(ports, 0) == (True, replace(EMPTY_HEAD, has_push_waiter=True))
    assert head_of(ports).has_push_waiter
    assert list(ports.push_events()) == []
    write(ports)
    assert (head_of(ports).next_offset, head_of(ports).has_push_waiter) == (span, False)
    assert list(ports.push_events()) == [event(span)]
    ports.log.append(KEY, ref(99), 0)
    assert list(ports.push_events()) == [event(span)], "nobody has armed the head since"


def test_head_that_is_deleted_or_created_again_wakes_nobody(ports: Ports) -> None:
    ports.log.create_head(KEY)
    arm_push(ports, 0)
    ports.log.create_head(KEY)
    assert head_of(ports).has_push_waiter
    ports.log.delete_head(KEY)
    assert list(ports.push_events()) == []


def test_push_waiter_stays_when_another_write_changes_the_head(ports: Ports) -> None:
    ports.log.create_head(KEY)
    for number in range(TAIL_ROLL_REFS + 2):
        _, head = append_sequenced(ports, replace(sequenced(number, 0, producer_id=number), zones=0b011))
    end = head.next_offset
    assert arm_push(ports, end)[0]
    assert ports.log.mark_stored(KEY, {head.located_tail()[3]: 0b100})
    roll(ports.log, KEY)
    ports.log.raise_log_start(KEY, Offset(2))
    ports.log.note_log_start(KEY, Offset(2), 1_000)
    assert ports.compaction.move_tail(KEY, a_move(head_of(ports), 0))
    producers = head_of(ports).producers
    ports.log.remove_producers(KEY, {number: producers[number] for number in list(producers)[:3]})
    assert ports.log.arm(KEY, end, 6_000)[0]
    assert (head_of(ports).has_push_waiter, head_of(ports).waiter_ms) == (True, 6_000)
    assert list(ports.push_events()) == []


def test_append_takes_both_waiters_and_tells_its_writer_of_the_readers_one(ports: Ports) -> None:
    ports.log.create_head(KEY)
    arm_push(ports, 0)
    assert not ports.log.append(KEY, ref(1), 0).took_waiter
    arm_push(ports, 3)
    ports.log.arm(KEY, Offset(3), 6_000)
    done = ports.log.append(KEY, ref(2), 0)
    assert done.took_waiter
    assert (done.head.waiter_ms, done.head.has_push_waiter) == (None, False)
    assert done.head == head_of(ports)


def test_transaction_takes_the_push_waiter_and_leaves_that_of_readers(ports: Ports) -> None:
    for key in (KEY, OTHER):
        ports.log.create_head(key)
    ports.transactions.begin_epoch(NAME, None, FIRST)
    arm_push(ports, 0)
    ports.log.arm(KEY, Offset(0), 6_000)
    commit(ports)
    assert (head_of(ports).waiter_ms, head_of(ports).has_push_waiter) == (6_000, False)


def test_refused_writes_leave_the_push_waiter(ports: Ports) -> None:
    ports.log.create_head(KEY)
    append_sequenced(ports, sequenced(1, 0))
    arm_push(ports, 3)
    assert not append_sequenced(ports, sequenced(1, 0))[0]
    assert not ports.transactions.commit(transaction()), "no producer of the transaction has begun"
    assert head_of(ports).has_push_waiter
    assert list(ports.push_events()) == []


def test_arm_push_is_refused_when_an_append_has_come_between_or_there_is_no_head(ports: Ports) -> None:
    assert arm_push(ports, 0) == (False, None)
    ports.log.create_head(KEY)
    head = ports.log.append(KEY, ref(1), 0).head
    assert arm_push(ports, 0) == (False, head)
    assert arm_push(ports, 4) == (False, head)
    assert head_of(ports) == head
    assert arm_push(ports, 3) == (True, replace(head, has_push_waiter=True))


def test_head_may_begin_with_a_push_waiter(ports: Ports) -> None:
    ports.log.create_head(KEY, has_push_waiter=True)
    assert head_of(ports) == replace(EMPTY_HEAD, has_push_waiter=True)
    ports.log.append(KEY, ref(1), 0)
    assert list(ports.push_events()) == [event(3)]
