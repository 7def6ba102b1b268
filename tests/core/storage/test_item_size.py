"""Sizes of items, and updates that are far from the bounds."""

from penstock_core.limits import (
    EVICTION_PRODUCERS_MAX,
    TAIL_ROLL_REFS,
)
from penstock_core.log.index import EMPTY_HEAD, appended
from penstock_core.log.roll import next_page
from penstock_core.records.producer_state import ProducerState
from penstock_core.storage.head_item import head_item
from penstock_core.storage.head_updates import producers_removal, tail_shortening
from penstock_core.storage.item import item_bytes
from tests.core.log.test_ref import GOLDEN
from tests.core.storage.stored_values import KEY
from tests.support.tables import check_update


def test_item_bytes_counts_a_ref() -> None:
    empty, full = head_item(KEY, EMPTY_HEAD), head_item(KEY, appended(EMPTY_HEAD, GOLDEN))
    assert item_bytes(full) - item_bytes(empty) == 44


def test_item_bytes_counts_every_kind() -> None:
    item = {"a": {"S": "\u00e9"}, "b": {"BOOL": True}, "c": {"M": {"d": {"L": [{"N": "12"}]}}}}
    assert item_bytes(item) == (1 + 2) + (1 + 1) + (1 + 3 + 1 + 1 + 3 + 1 + 3)


def test_item_bytes_counts_the_elements_of_sets() -> None:
    assert item_bytes({"a": {"SS": ["b", "\u00e9"]}, "c": {"BS": [b"12", b"3"]}, "d": {"NS": ["12"]}}) == 4 + 4 + 4


def test_roll_and_eviction_are_far_from_the_bounds() -> None:
    head = EMPTY_HEAD
    for _ in range(TAIL_ROLL_REFS):
        head = appended(head, GOLDEN)
    page = next_page(head)
    assert page is not None
    check_update(tail_shortening(KEY, page))
    state = ProducerState(epoch=0, last_sequence=0, written_ms=0)
    check_update(producers_removal(KEY, dict.fromkeys(range(EVICTION_PRODUCERS_MAX), state)))
