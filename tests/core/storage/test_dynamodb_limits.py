"""DynamoDB's limits, as the adapters in memory hold them."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    EVICTION_PRODUCERS_MAX,
    EXPRESSION_BYTES_MAX,
    EXPRESSION_OPERATORS_MAX,
    ITEM_BYTES_MAX,
    TAIL_ROLL_REFS,
    TRANSACTION_ACTIONS_MAX,
)
from penstock_core.log.index import EMPTY_HEAD, appended
from penstock_core.log.roll import next_page
from penstock_core.records.producer_state import ProducerState
from penstock_core.storage.dynamodb_limits import check_actions, check_item, check_update, item_bytes
from penstock_core.storage.head_item import head_item
from penstock_core.storage.head_updates import producers_removal, tail_shortening
from penstock_core.storage.item import ConditionalUpdate
from tests.core.log.test_ref import GOLDEN
from tests.core.storage.stored_values import KEY


def update(expression: str, condition: str = "a = :a") -> ConditionalUpdate:
    return ConditionalUpdate(key={}, update=expression, condition=condition, values={})


def test_item_bytes_counts_a_ref() -> None:
    empty, full = head_item(KEY, EMPTY_HEAD), head_item(KEY, appended(EMPTY_HEAD, GOLDEN))
    assert item_bytes(full) - item_bytes(empty) == 44


def test_item_bytes_counts_every_kind() -> None:
    item = {"a": {"S": "\u00e9"}, "b": {"BOOL": True}, "c": {"M": {"d": {"L": [{"N": "12"}]}}}}
    assert item_bytes(item) == (1 + 2) + (1 + 1) + (1 + 3 + 1 + 1 + 3 + 1 + 3)


def test_item_bytes_counts_the_elements_of_sets() -> None:
    assert item_bytes({"a": {"SS": ["b", "\u00e9"]}, "c": {"BS": [b"12", b"3"]}, "d": {"NS": ["12"]}}) == 4 + 4 + 4


def test_largest_item_is_accepted_and_one_byte_more_is_refused() -> None:
    check_item({"a": {"B": bytes(ITEM_BYTES_MAX - 1)}})
    with pytest.raises(PenstockError, match="409601 bytes") as caught:
        check_item({"a": {"B": bytes(ITEM_BYTES_MAX)}})
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_REFUSED, False)


def test_most_actions_are_accepted_and_one_more_is_refused() -> None:
    check_actions(TRANSACTION_ACTIONS_MAX)
    with pytest.raises(PenstockError, match="101 actions"):
        check_actions(TRANSACTION_ACTIONS_MAX + 1)


def test_longest_expression_is_accepted_and_one_byte_more_is_refused() -> None:
    check_update(update("x" * EXPRESSION_BYTES_MAX))
    for wrong in (update("x" * (EXPRESSION_BYTES_MAX + 1)), update("x", "x" * (EXPRESSION_BYTES_MAX + 1))):
        with pytest.raises(PenstockError, match="4097 bytes"):
            check_update(wrong)


def test_most_operators_are_accepted_and_one_more_is_refused() -> None:
    check_update(update("a=:a" + ",a=:a" * ((EXPRESSION_OPERATORS_MAX - 2) // 2)))
    with pytest.raises(PenstockError, match="operators"):
        check_update(update("a=:a" + ",a=:a" * (EXPRESSION_OPERATORS_MAX // 2)))


def test_roll_and_eviction_are_far_from_the_bounds() -> None:
    head = EMPTY_HEAD
    for _ in range(TAIL_ROLL_REFS):
        head = appended(head, GOLDEN)
    page = next_page(head)
    assert page is not None
    check_update(tail_shortening(KEY, page))
    state = ProducerState(epoch=0, last_sequence=0, written_ms=0)
    check_update(producers_removal(KEY, dict.fromkeys(range(EVICTION_PRODUCERS_MAX), state)))
