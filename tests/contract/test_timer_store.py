"""The contract of TimerStore, held by the adapters in memory, with a database, and on DynamoDB."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Nonce, Offset, Partition, PartitionKey, TopicId, TransactionalId
from penstock_core.limits import TAIL_ROLL_REFS, TIMER_MARK_KEPT_MS, TIMER_SHARDS, TIMERS_PROMOTED_MAX
from penstock_core.log.delivery import Delivery, DeliveryOutcome, rolling
from penstock_core.log.index import Head
from penstock_core.log.roll import next_page
from penstock_core.log.timer import DueMinute, PlaceRange, Timer, TimerState, is_repeat
from penstock_core.transaction import Begin, Transaction, TransactionalProducer, TransactionState, next_producer_epoch
from tests.contract.conftest import Ports
from tests.support.refs import ref_at
from tests.support.refusals import refused
from tests.support.timers import timer_at, waiting

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
OTHER = PartitionKey(TopicId("0f" * 10), Partition(4))
NOW = 2_000_000


def put(ports: Ports, *due_ms: int) -> list[Timer]:
    timers = [timer_at(KEY, due, number, span=2) for number, due in enumerate(due_ms)]
    for timer in timers:
        assert ports.timers.put(timer) == timer
    return timers


def promote(ports: Ports, timers: Sequence[Timer], now_ms: int) -> bool:
    outcome = ports.timers.promote(Delivery(key=KEY, timers=timers, now_ms=now_ms))
    assert outcome is not DeliveryOutcome.MOVED, "it says nothing of the tail"
    return outcome is DeliveryOutcome.DONE


def head_of(ports: Ports) -> Head:
    return ports.log.heads([KEY])[KEY]


def with_tail(ports: Ports, refs: int) -> Head:
    ports.log.create_head(KEY)
    for number in range(refs):
        ports.log.append(KEY, ref_at(number, zones=0b011), 0b100)
    return head_of(ports)


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
    assert list(waiting(ports.timers, KEY, 0, 9_000, 10)) == wanted
    assert list(waiting(ports.timers, KEY, 1_000, 3_000, 10)) == wanted[:3]
    assert list(waiting(ports.timers, KEY, 1_001, 3_001, 10)) == wanted[2:]
    assert list(waiting(ports.timers, KEY, 0, 9_000, 2)) == wanted[:2]
    assert list(waiting(ports.timers, KEY, 0, 9_000, 2, wanted[1].place)) == wanted[2:]
    assert list(waiting(ports.timers, KEY, 2_500, 9_000, 2, wanted[1].place)) == wanted[3:]
    assert list(waiting(ports.timers, KEY, 3_000, 3_000, 2)) == []


def test_promotion_appends_refs_in_order_and_leaves_marks(ports: Ports) -> None:
    ports.log.create_head(KEY)
    before = ref_at(1)
    ports.log.append(KEY, before, 0b111)
    ports.log.arm(KEY, Offset(1), 5)
    timers = put(ports, 1_000, 2_000, 3_000)
    assert promote(ports, timers[:2], NOW)
    head = head_of(ports)
    assert head.tail == (before, *(replace(timer.ref, appended_ms=NOW, is_delayed=True) for timer in timers[:2]))
    assert (head.next_offset, head.waiter_ms) == (5, 5)
    assert list(waiting(ports.timers, KEY, 0, 9_000, 1)) == timers[2:]
    mark = ports.timers.get(KEY, timers[0].place)
    assert mark is not None
    assert (mark.state, mark.settled_ms) == (TimerState.DELIVERED, NOW)
    assert mark.expires_ms == NOW + TIMER_MARK_KEPT_MS
    assert ports.timers.put(timers[0]) == mark


def test_rolling_delivery_leaves_what_a_plain_one_and_its_rolls_leave(ports: Ports) -> None:
    before = with_tail(ports, 5)
    ports.log.arm(KEY, Offset(5), 77)
    timers = put(ports, *range(1_000, 1_000 + TIMERS_PROMOTED_MAX))
    delivery = rolling(Delivery(key=KEY, timers=timers, now_ms=NOW), before)
    assert delivery.roll is not None
    assert ports.timers.promote(delivery) is DeliveryOutcome.DONE
    head, pages = head_of(ports), ports.log.pages(KEY, Offset(0), 100)
    assert head == replace(delivery.roll.after, waiter_ms=77)
    assert list(pages) == list(delivery.roll.pages)
    assert [len(page.refs) for page in pages] == [TAIL_ROLL_REFS] * len(pages)
    refs = [*before.tail, *(replace(timer.ref, appended_ms=NOW, is_delayed=True) for timer in timers)]
    assert [ref for page in pages for ref in page.refs] + list(head.tail) == refs
    assert (head.tail_base, head.next_offset) == (pages[-1].end_offset, 5 + 2 * len(timers))
    assert not waiting(ports.timers, KEY, 0, 9_000, 1)
    assert ports.timers.promote(delivery) is DeliveryOutcome.SETTLED, "a repeat after a lost answer"
    assert head_of(ports) == head


def test_rolling_delivery_is_refused_if_the_tail_has_moved_and_changes_nothing(ports: Ports) -> None:
    before = with_tail(ports, 3)
    timers = put(ports, *range(1_000, 1_020))
    delivery = rolling(Delivery(key=KEY, timers=timers, now_ms=NOW), before)
    ports.log.append(KEY, ref_at(9), 0b111)
    after = head_of(ports)
    assert ports.timers.promote(delivery) is DeliveryOutcome.MOVED
    assert ports.timers.cancel(KEY, timers[0].place, NOW) is not None
    assert ports.timers.promote(delivery) is DeliveryOutcome.SETTLED
    assert (head_of(ports), list(ports.log.pages(KEY, Offset(0), 9))) == (after, [])
    assert waiting(ports.timers, KEY, 0, 9_000, 99) == timers[1:]
    unknown = replace(delivery, key=OTHER, timers=[timer_at(OTHER, 1_000)])
    ports.timers.put(unknown.timers[0])
    assert ports.timers.promote(unknown) is DeliveryOutcome.MOVED, "there is no head at all"


def test_rolling_delivery_is_refused_if_a_zone_bit_was_set_meanwhile(ports: Ports) -> None:
    before = with_tail(ports, 3)
    delivery = rolling(Delivery(key=KEY, timers=put(ports, *range(1_000, 1_020)), now_ms=NOW), before)
    located = before.located_tail()[1]
    assert ports.log.mark_stored(KEY, {located: 0b100}) == 1
    assert head_of(ports).tail != before.tail
    assert ports.timers.promote(delivery) is DeliveryOutcome.MOVED


def test_rolling_delivery_is_refused_by_a_page_that_a_roll_has_put(ports: Ports) -> None:
    before = with_tail(ports, TAIL_ROLL_REFS + 1)
    page = next_page(before)
    assert page is not None
    delivery = rolling(Delivery(key=KEY, timers=put(ports, 1_000), now_ms=NOW), before)
    ports.log.put_page(KEY, page)
    assert ports.timers.promote(delivery) is DeliveryOutcome.MOVED
    assert (head_of(ports), list(ports.log.pages(KEY, Offset(0), 9))) == (before, [page])
    assert promote(ports, delivery.timers, NOW)


def test_waiting_timers_of_a_shard_are_found_behind_many_marks(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = put(ports, *range(1_000, 1_080))
    assert promote(ports, timers[:70], NOW)
    by_shard = [list(ports.timers.waiting(KEY, shard, PlaceRange(0, 9_000), 2)) for shard in range(TIMER_SHARDS)]
    wanted = [[each for each in timers[70:] if each.place.shard == shard][:2] for shard in range(TIMER_SHARDS)]
    assert by_shard == wanted
    assert sum(map(bool, wanted)) > 1


def test_promotion_of_a_timer_that_waits_no_more_changes_nothing(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = put(ports, 1_000, 2_000)
    assert promote(ports, timers[:1], NOW)
    assert not promote(ports, timers, NOW)
    assert head_of(ports).next_offset == 2
    assert not promote(ports, [timer_at(KEY, 5_000)], NOW)
    assert list(waiting(ports.timers, KEY, 0, 9_000, 9)) == timers[1:]


def test_promotion_without_head_is_refused(ports: Ports) -> None:
    timers = put(ports, 1_000)
    refused(ErrorCode.UNKNOWN_PARTITION, lambda: promote(ports, timers, NOW))
    assert list(waiting(ports.timers, KEY, 0, 9_000, 9)) == timers


def test_as_many_timers_as_allowed_are_promoted_at_once(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = put(ports, *range(1_000, 1_000 + TIMERS_PROMOTED_MAX))
    assert promote(ports, timers, NOW)
    assert head_of(ports).next_offset == 2 * TIMERS_PROMOTED_MAX


def test_cancel_is_refused_after_the_delivery_and_repeatable(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = put(ports, 1_000, 9_000_000)
    assert promote(ports, timers[:1], NOW)
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
    assert not promote(ports, timers[1:], NOW)
    assert ports.timers.cancel(OTHER, timers[1].place, NOW) is None


def test_deleted_timer_is_gone(ports: Ports) -> None:
    timers = put(ports, 1_000, 2_000)
    ports.timers.delete(KEY, timers[0].place)
    ports.timers.delete(KEY, timers[0].place)
    assert list(waiting(ports.timers, KEY, 0, 9_000, 9)) == timers[1:]
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
    return ports.transactions.begin_epoch(TransactionalId("t"), None, next_producer_epoch(None, 7, begin, 0))


def transaction(number: int, *timers: Timer) -> Transaction:
    return Transaction(
        producer=TransactionalProducer(transactional_id=TransactionalId("t"), epoch=0),
        number=number,
        expires_at_s=9,
        refs={KEY: [ref_at(1)]},
        nonce=Nonce(number.to_bytes(16, "big")),
        timers=timers,
    )


@pytest.mark.usefixtures("producer")
def test_transaction_puts_its_timers_with_its_refs_or_not_at_all(ports: Ports) -> None:
    ports.log.create_head(KEY)
    timers = [timer_at(KEY, 1_000, number) for number in range(3)]
    assert ports.transactions.commit(transaction(0, *timers[:2]))
    assert list(waiting(ports.timers, KEY, 0, 9_000, 9)) == timers[:2]
    assert not ports.transactions.commit(transaction(0, timers[2]))
    refused(ErrorCode.TIMER_EXISTS, lambda: ports.transactions.commit(transaction(1, timers[2], timers[1])))
    assert list(waiting(ports.timers, KEY, 0, 9_000, 9)) == timers[:2]
    assert head_of(ports).next_offset == 1
