"""The head and its pages: whatever the order of appends and rolls, every offset is covered once, in order."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.index import EMPTY_HEAD, Head, Page, appended, roll_due, rolled
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.ref import Ref
from tests.core.test_ref import GOLDEN, REFS


def _append_all(refs: list[Ref], roll_succeeds: list[bool]) -> tuple[Head, list[Page]]:
    head, pages = EMPTY_HEAD, []
    fates = iter(roll_succeeds)
    for ref in refs:
        head = appended(head, ref)
        roll = roll_due(head)
        if roll is not None and next(fates, True):
            after = rolled(head, roll)
            assert after is not None
            head = after
            pages.append(roll.page)
    return head, pages


@given(st.lists(REFS, max_size=70), st.lists(st.booleans()))
def test_pages_and_tail_hold_every_ref_in_order_when_rolls_fail_at_will(refs: list[Ref], fates: list[bool]) -> None:
    head, pages = _append_all(refs, fates)
    assert [ref for page in pages for ref in page.refs] + list(head.tail) == refs
    assert head.next_offset == sum(ref.offset_span for ref in refs)
    bounds = [(page.base_offset, page.end_offset) for page in pages] + [(head.tail_base, head.next_offset)]
    assert bounds[0][0] == 0
    assert all(earlier[1] == later[0] for earlier, later in itertools.pairwise(bounds))


@given(st.lists(REFS, max_size=70))
def test_newest_timestamp_of_pages_never_falls(refs: list[Ref]) -> None:
    head, pages = _append_all(refs, [])
    newest = [page.max_timestamp_ms for page in pages]
    assert newest == sorted(newest)
    rolled_refs = [ref.max_timestamp_ms for page in pages for ref in page.refs]
    assert head.rolled_max_timestamp_ms == max(rolled_refs, default=-1)


def test_roll_is_due_at_multiples_only() -> None:
    head = EMPTY_HEAD
    due = []
    for length in range(1, 3 * TAIL_ROLL_REFS + 1):
        head = appended(head, GOLDEN)
        if roll_due(head) is not None:
            due.append(length)
    assert due == [TAIL_ROLL_REFS, 2 * TAIL_ROLL_REFS, 3 * TAIL_ROLL_REFS]
    assert roll_due(EMPTY_HEAD) is None


def test_the_same_roll_applies_once() -> None:
    head = EMPTY_HEAD
    for _ in range(TAIL_ROLL_REFS):
        head = appended(head, GOLDEN)
    roll = roll_due(head)
    assert roll is not None
    after = rolled(appended(head, GOLDEN), roll)
    assert after is not None
    assert after.tail == (GOLDEN,)
    assert rolled(after, roll) is None
