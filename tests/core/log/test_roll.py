"""What leaves a head, and when: rolls of exactly 16 refs, and chunks of silent producers."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import (
    EVICTION_PRODUCERS_MAX,
    EVICTION_PRODUCERS_MIN,
    EVICTION_RETRY_PRODUCERS,
    HEAD_PRODUCERS_KEPT,
    LONG_TAIL_ROLL_REFS,
    TAIL_ROLL_REFS,
)
from penstock_core.log.index import EMPTY_HEAD, Head, appended
from penstock_core.log.ref import Ref
from penstock_core.log.roll import (
    is_eviction_due,
    is_roll_due,
    next_page,
    producers_to_evict,
    shortened,
    with_bits_of,
)
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from tests.core.log.test_ref import GOLDEN

EVICTION_AT = HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN


def head_with(refs: int) -> Head:
    head = EMPTY_HEAD
    for number in range(refs):
        head = appended(head, replace(GOLDEN, position=number))
    return head


def head_of_producers(count: int, in_tail: int = 0) -> Head:
    """A head that knows the producers 0 to `count` - 1, who wrote in this order; the last ones are in the tail."""
    producers = {each: ProducerState(epoch=0, last_sequence=0, written_ms=each) for each in range(count)}
    tail = tuple(written_by(each) for each in range(count - in_tail, count))
    return replace(EMPTY_HEAD, producers=producers, tail=tail, next_offset=Offset(in_tail))


def written_by(producer_id: int, first: int = 0) -> Ref:
    sequence = ProducerSequence(producer_id=producer_id, epoch=0, first_sequence=first, last_sequence=first)
    return replace(GOLDEN, offset_span=1, sequence=sequence)


def test_roll_is_due_at_multiples_only_and_more_often_in_a_long_tail() -> None:
    due = [length for length in range(3 * TAIL_ROLL_REFS + 1) if is_roll_due(head_with(length))]
    assert due == [TAIL_ROLL_REFS, *range(2 * TAIL_ROLL_REFS, 3 * TAIL_ROLL_REFS + 1, LONG_TAIL_ROLL_REFS)]


def test_roll_is_due_when_one_append_steps_over_a_multiple() -> None:
    assert is_roll_due(head_with(TAIL_ROLL_REFS + 3), appended_refs=4)
    assert not is_roll_due(head_with(TAIL_ROLL_REFS + 3), appended_refs=3)


@given(st.integers(0, 5 * TAIL_ROLL_REFS))
def test_next_page_has_the_first_refs_whatever_follows(length: int) -> None:
    page = next_page(head_with(length))
    if length < TAIL_ROLL_REFS:
        assert page is None
    else:
        assert page == next_page(head_with(TAIL_ROLL_REFS))


def test_a_page_is_rolled_once() -> None:
    head = head_with(TAIL_ROLL_REFS + 1)
    page = next_page(head)
    assert page is not None
    after = shortened(head, page)
    assert after is not None
    assert (after.tail_base, after.tail) == (page.end_offset, head.tail[TAIL_ROLL_REFS:])
    assert shortened(after, page) is None


def test_a_page_with_older_bits_is_refused_until_it_has_those_of_the_tail() -> None:
    head = head_with(TAIL_ROLL_REFS)
    page = next_page(head)
    assert page is not None
    marked = replace(head, tail=(replace(head.tail[0], zones=0b111), *head.tail[1:]))
    assert shortened(marked, page) is None
    both = with_bits_of(page, replace(page, refs=marked.tail))
    assert both is not None
    assert shortened(marked, both) is not None


def test_with_bits_of_refuses_another_page() -> None:
    page = next_page(head_with(TAIL_ROLL_REFS))
    assert page is not None
    other = replace(page, refs=(replace(page.refs[0], length=99), *page.refs[1:]))
    assert with_bits_of(page, other) is None
    assert with_bits_of(page, replace(page, base_offset=Offset(1))) is None
    assert with_bits_of(page, replace(page, refs=page.refs[:-1])) is None


def test_eviction_is_due_at_a_number_and_again_at_multiples_beyond() -> None:
    due = [count for count in range(EVICTION_AT + 10) if is_eviction_due(head_of_producers(count))]
    assert due == [EVICTION_AT, EVICTION_AT + EVICTION_RETRY_PRODUCERS, EVICTION_AT + 2 * EVICTION_RETRY_PRODUCERS]


def test_the_longest_silent_leave_so_that_enough_stay() -> None:
    assert set(producers_to_evict(head_of_producers(EVICTION_AT))) == set(range(EVICTION_PRODUCERS_MIN))
    assert len(producers_to_evict(head_of_producers(500))) == EVICTION_PRODUCERS_MAX
    assert not producers_to_evict(head_of_producers(EVICTION_AT - 1))


def test_a_producer_with_a_ref_in_the_tail_stays() -> None:
    head = head_of_producers(EVICTION_AT, in_tail=EVICTION_AT - 3)
    assert set(producers_to_evict(head)) == {0, 1, 2}
    assert not producers_to_evict(head_of_producers(EVICTION_AT, in_tail=EVICTION_AT))
