from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.log.index import Page
from penstock_core.log.ref import encode_ref
from penstock_core.storage.page_item import (
    PAGE_LAST,
    MergeMark,
    merge_mark_item,
    page_item,
    page_item_key,
    page_key,
    parse_merge_mark,
    parse_page,
)
from tests.core.log.test_ref import GOLDEN, REFS
from tests.core.storage.stored_values import KEY, OFFSETS, TIMES_MS


@given(
    st.builds(
        Page,
        base_offset=OFFSETS,
        refs=st.lists(REFS, max_size=16).map(tuple),
        max_timestamp_ms=TIMES_MS,
        rolled_bytes=st.integers(0, 2**62),
    )
)
def test_page_survives_a_round_trip(page: Page) -> None:
    assert parse_page(page_item(KEY, page)) == page


def test_page_item_is_what_is_stored_today() -> None:
    page = Page(base_offset=Offset(10), refs=(GOLDEN,), max_timestamp_ms=5, rolled_bytes=9)
    item = page_item(KEY, page)
    assert item["sk"] == {"S": "page#00000000000000000013"}
    assert item == {
        **page_item_key(KEY, page.end_offset),
        "base_offset": {"N": "10"},
        "refs": {"B": encode_ref(GOLDEN)},
        "max_timestamp_ms": {"N": "5"},
        "rolled_bytes": {"N": "9"},
    }


@given(OFFSETS, OFFSETS)
def test_page_keys_sort_as_their_offsets(one: Offset, other: Offset) -> None:
    assert (page_key(one) < page_key(other)) == (one < other)
    assert page_key(one) < PAGE_LAST


def test_merge_mark_takes_the_key_of_its_page() -> None:
    mark = MergeMark(marks_before=3, marks_behind=0)
    item = merge_mark_item(KEY, Offset(13), mark, 5_000)
    assert item == {
        **page_item_key(KEY, Offset(13)),
        "marks_before": {"N": "3"},
        "marks_behind": {"N": "0"},
        "expires_at_s": {"N": str(5 + 7 * 24 * 3_600)},
    }
    assert parse_merge_mark(item) == mark
    assert parse_merge_mark(page_item(KEY, Page(base_offset=Offset(0), refs=(), max_timestamp_ms=-1))) is None
