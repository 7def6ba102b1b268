"""The contract of TimerStore, held by the adapters in memory, with a database, and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Nonce, Offset, Partition, PartitionKey, TopicId, TransactionalId
from penstock_core.limits import TIMER_MARK_KEPT_MS, TIMERS_PROMOTED_MAX
from penstock_core.log.timer import DueMinute, Timer, TimerState, is_repeat
from penstock_core.transaction import Begin, Transaction, TransactionalProducer, TransactionState, next_producer_epoch
from tests.contract.conftest import Ports
from tests.support.refs import ref_at
from tests.support.refusals import refused
from tests.support.timers import timer_at

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
OTHER = PartitionKey(TopicId("0f" * 10), Partition(4))
NOW = 2_000_000


def put(ports: Ports, *due_ms: int) -> list[Timer]:
    timers = [timer_at(KEY, due, number, span=2) for number, due in enumerate(due_ms)]
    for timer in timers:
        assert ports.timers.put(timer) == timer
    return timers


def test_put_of_a_taken_key_gives_the_first_timer(ports: Ports) -> None:
    [first] = put(ports, 1_000)
    assert ports.timers.put(first) == first
    other = replace(first, crc=8)
    assert ports.timers.put(other) == first
    assert is_repeat(first, first)
    assert not is_repeat(first, other)
    assert ports.timers.get(KEY, first.place) == first
    assert ports.timers.get(OTHER, first.place) is None


def test_waiting_timers_come_in_order_of_due_time_and_id(ports: Ports) -> None:
    timers = put(ports, 3_000, 1_000, 2_000, 1_000)
    ports.timers.put(timer_at(OTHER, 1_000))
    wanted = [timers[1], timers[3], timers[2], timers[0]]
    assert list(ports.timers.waiting(KEY, 0, 9_000, 10)) == wanted
    assert list(ports.timers.waiting(KEY, 1_000, 3_000, 10)) == wanted[:3]
    assert list(ports.timers.waiting(KEY, 1_001, 3_001, 10)) == wanted[2:]
    assert list(ports.timers.waiting(KEY, 0, 9_000, 2)) == wanted[:2]
    assert list(ports.timers.waiting(KEY, 0, 9_000, 2, wanted[1].place)) == wanted[2:]
    assert list(ports.timers.waiting(KEY, 2_500, 9_000, 2, wanted[1].place)) == wanted[3:]
    assert list(ports.timers.waiting(KEY, 3_000, 3_000, 2)) == []


def test_promotion_appends_refs_in_order_and_leaves_marks(ports: Ports) -> None:
    ports.log.create_head(KEY)
    before = ref_at(1)
    ports.log.append(KEY, before, 0b111)
    ports.log.arm(KEY, Offset(1), 5)
    timers = put(ports, 1_000, 2_000, 3_000)
    assert ports.timers.promote(KEY, timers[:2], NOW)
    head = ports.log.heads([KEY])[KEY]
    assert head.tail == (before, *(replace(timer.ref, delivered_ms=NOW) for timer in timers[:2]))
    assert (head.next_offset, head.waiter_ms) == (5, 5)
    assert list(ports.timers.waiting(KEY, 0, 9_000, 1)) == timers[2:]
    mark = ports.timers.get(KEY, timers[0].place)
    assert mark is not None
    assert (mark.state, mark.settled_ms) == (TimerState.DELIVERED, NOW)
    assert mark.expires_ms == NOW + TIMER_MARK_KEPT_MS
    assert ports.timers.put(timers[0]) == mark


def test_promotion_of_a_timer_that_waits_no_more_changes_nothing(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = put(ports, 1_000, 2_000)
    assert ports.timers.promote(KEY, timers[:1], NOW)
    assert not ports.timers.promote(KEY, timers, NOW)
    assert ports.log.heads([KEY])[KEY].next_offset == 2
    assert not ports.timers.promote(KEY, [timer_at(KEY, 5_000)], NOW)
    assert list(ports.timers.waiting(KEY, 0, 9_000, 9)) == timers[1:]


def test_promotion_without_head_is_refused(ports: Ports) -> None:
    timers = put(ports, 1_000)
    refused(ErrorCode.UNKNOWN_PARTITION, lambda: ports.timers.promote(KEY, timers, NOW))
    assert list(ports.timers.waiting(KEY, 0, 9_000, 9)) == timers


def test_as_many_timers_as_allowed_are_promoted_at_once(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = put(ports, *range(1_000, 1_000 + TIMERS_PROMOTED_MAX))
    assert ports.timers.promote(KEY, timers, NOW)
    assert ports.log.heads([KEY])[KEY].next_offset == 2 * TIMERS_PROMOTED_MAX


def test_cancel_is_refused_after_the_delivery_and_repeatable(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = put(ports, 1_000, 9_000_000)
    assert ports.timers.promote(KEY, timers[:1], NOW)
    states: list[tuple[TimerState, int | None]] = []
    for timer in (timers[0], timers[1], timers[1]):
        after = ports.timers.cancel(KEY, timer.place, NOW + len(states))
        assert after is not None
        states.append((after.state, after.settled_ms))
    assert states == [
        (TimerState.DELIVERED, NOW),
        (TimerState.CANCELLED, NOW + 1),
        (TimerState.CANCELLED, NOW + 1),
    ]
    mark = ports.timers.put(timers[1])
    assert mark.expires_ms == 9_000_000 + TIMER_MARK_KEPT_MS, "no put may come after the mark has gone"
    assert not ports.timers.promote(KEY, timers[1:], NOW)
    assert ports.timers.cancel(OTHER, timers[1].place, NOW) is None


def test_deleted_timer_is_gone(ports: Ports) -> None:
    timers = put(ports, 1_000, 2_000)
    ports.timers.delete(KEY, timers[0].place)
    ports.timers.delete(KEY, timers[0].place)
    assert list(ports.timers.waiting(KEY, 0, 9_000, 9)) == timers[1:]
    assert ports.timers.cancel(KEY, timers[0].place, NOW) is None


def test_index_names_minutes_in_order_until_they_are_forgotten(ports: Ports) -> None:
    minutes = [DueMinute(minute, key) for minute, key in ((5, KEY), (6, KEY), (6, OTHER), (21, KEY), (400, OTHER))]
    assert [ports.timers.reserve(each, 3) for each in reversed(minutes)] == [3] * 5
    assert ports.timers.reserve(minutes[0], 4) == 7
    assert list(ports.timers.due_minutes(400)) == minutes[:4]
    ports.timers.forget_minute(minutes[1])
    ports.timers.forget_minute(minutes[1])
    assert list(ports.timers.due_minutes(21)) == [minutes[0], minutes[2]]
    assert ports.timers.reserve(minutes[1], 1) == 1


def test_switch_is_noted(ports: Ports) -> None:
    assert ports.timers.switched_on_ms() is None
    ports.timers.note_switched_on(NOW)
    assert ports.timers.switched_on_ms() == NOW


@pytest.fixture
def producer(ports: Ports) -> TransactionState:
    begin = Begin(nonce=Nonce(b"b" * 16))
    return ports.transactions.begin_epoch(TransactionalId("t"), None, next_producer_epoch(None, 7, begin))


def transaction(number: int, *timers: Timer) -> Transaction:
    return Transaction(
        producer=TransactionalProducer(transactional_id=TransactionalId("t"), epoch=0),
        number=number,
        refs={KEY: [ref_at(1)]},
        nonce=Nonce(number.to_bytes(16, "big")),
        timers=timers,
    )


@pytest.mark.usefixtures("producer")
def test_transaction_puts_its_timers_with_its_refs_or_not_at_all(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = [timer_at(KEY, 1_000, number) for number in range(3)]
    assert ports.transactions.commit(transaction(0, *timers[:2]))
    assert list(ports.timers.waiting(KEY, 0, 9_000, 9)) == timers[:2]
    assert not ports.transactions.commit(transaction(0, timers[2]))
    refused(ErrorCode.TIMER_EXISTS, lambda: ports.transactions.commit(transaction(1, timers[2], timers[1])))
    assert list(ports.timers.waiting(KEY, 0, 9_000, 9)) == timers[:2]
    assert ports.log.heads([KEY])[KEY].next_offset == 1
