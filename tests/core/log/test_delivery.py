from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import TAIL_ROLL_REFS, TIMERS_PROMOTED_MAX, TRANSACTION_ACTIONS_MAX
from penstock_core.log.delivery import Delivery, rolling
from penstock_core.log.index import EMPTY_HEAD, Head, appended
from penstock_core.log.roll import next_page
from tests.support.refs import ref_at
from tests.support.timers import timer_at

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
NOW = 2_000_000


def head_with(tail: int) -> Head:
    head = EMPTY_HEAD
    for number in range(tail):
        head = appended(head, ref_at(number, span=3))
    return head


def delivery_of(timers: int) -> Delivery:
    return Delivery(key=KEY, timers=[timer_at(KEY, 1_000 + each, each, span=2) for each in range(timers)], now_ms=NOW)


@given(st.integers(0, 80), st.integers(1, TIMERS_PROMOTED_MAX))
def test_rolling_fills_pages_and_keeps_every_ref_in_order_when_it_fits(tail: int, timers: int) -> None:
    head, delivery = head_with(tail), delivery_of(timers)
    rolled = rolling(delivery, head)
    assert rolled.actions <= TRANSACTION_ACTIONS_MAX
    pages_wanted = (tail + timers) // TAIL_ROLL_REFS
    if not pages_wanted or 1 + pages_wanted + timers > TRANSACTION_ACTIONS_MAX:
        assert rolled == delivery
        return
    assert rolled == replace(delivery, roll=rolled.roll)
    roll = rolled.roll
    assert roll is not None
    assert roll.before == head
    assert (len(roll.pages), len(roll.after.tail)) == (pages_wanted, (tail + timers) % TAIL_ROLL_REFS)
    assert [ref for page in roll.pages for ref in page.refs] + list(roll.after.tail) == [*head.tail, *delivery.refs]
    ends = [head.tail_base, *(page.end_offset for page in roll.pages)]
    assert [page.base_offset for page in roll.pages] == ends[:-1]
    assert (roll.after.tail_base, roll.after.next_offset) == (ends[-1], head.next_offset + 2 * timers)


def test_pages_are_those_that_rolls_would_make() -> None:
    head, delivery = head_with(7), delivery_of(30)
    roll = rolling(delivery, head).roll
    assert roll is not None
    for ref in delivery.refs:
        head = appended(head, ref)
    assert next_page(head) == roll.pages[0]
    assert roll.after.rolled_bytes == roll.pages[-1].rolled_bytes
    assert roll.after.rolled_max_timestamp_ms == roll.pages[-1].max_timestamp_ms


def test_most_timers_fit_into_a_transaction_with_their_pages_behind_a_usual_tail() -> None:
    assert rolling(delivery_of(TIMERS_PROMOTED_MAX), head_with(2 * TAIL_ROLL_REFS)).roll is not None
