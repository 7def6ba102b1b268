"""The head and its pages: whatever the order of appends and rolls, every offset is covered once, in order."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.log.index import EMPTY_HEAD, Head, Page, appended
from penstock_core.log.ref import Ref
from penstock_core.log.retention import searched_ms
from penstock_core.log.roll import is_roll_due, next_page, shortened
from tests.core.log.test_ref import REFS


def _append_all(refs: list[Ref], roll_succeeds: list[bool]) -> tuple[Head, list[Page]]:
    head, pages = EMPTY_HEAD, []
    fates = iter(roll_succeeds)
    for ref in refs:
        head = appended(head, ref)
        if is_roll_due(head) and next(fates, True):
            page = next_page(head)
            assert page is not None
            after = shortened(head, page)
            assert after is not None
            head = after
            pages.append(page)
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
    rolled_refs = [searched_ms(ref) for page in pages for ref in page.refs]
    assert head.rolled_max_timestamp_ms == max(rolled_refs, default=-1)
