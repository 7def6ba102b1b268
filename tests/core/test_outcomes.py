"""Outcomes: each entry keeps its place, whatever happens to its neighbours."""

from contextlib import AbstractContextManager

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.outcomes import (
    Outcome,
    Outcomes,
    as_maybe_applied,
    errors_maybe_applied,
    errors_of_a_late_attempt,
    outcome_of,
)

BAD = PenstockError(ErrorCode.UNKNOWN_TOPIC, "bad")
WORSE = PenstockError(ErrorCode.UNKNOWN_PARTITION, "worse")
MIXED: Outcomes[int] = Outcomes([1, BAD, 3, WORSE])
RETRIABLE = PenstockError(ErrorCode.THROTTLED, "later", limit=1)
FINAL = PenstockError(ErrorCode.PARTITION_CLOSED, "no")


def odd_only(number: int) -> int:
    if number % 2 == 0:
        raise BAD
    return number


def test_outcome_is_the_error_when_the_function_raises_one() -> None:
    assert outcome_of(odd_only, 1) == 1
    assert outcome_of(odd_only, 2) is BAD


def test_outcome_of_raises_any_other_exception() -> None:
    with pytest.raises(ZeroDivisionError):
        outcome_of(lambda number: 1 // number, 0)


def test_collect_keeps_the_order_of_the_entries() -> None:
    assert Outcomes.collect(odd_only, [1, 2, 3]) == (1, BAD, 3)


def test_ok_and_errors_split_the_outcomes() -> None:
    assert MIXED.ok == [1, 3]
    assert MIXED.errors == [BAD, WORSE]


def test_none_is_a_value() -> None:
    assert Outcomes[None]([None, BAD]).ok == [None]


def test_all_ok_returns_every_value_when_there_is_no_error() -> None:
    assert Outcomes[int]([1, 3]).all_ok() == [1, 3]


def test_all_ok_raises_the_first_error_when_there_are_some() -> None:
    with pytest.raises(PenstockError) as caught:
        MIXED.all_ok()
    assert caught.value is BAD


def test_map_ok_leaves_errors_and_adds_those_that_it_meets() -> None:
    assert MIXED.map_ok(lambda number: odd_only(number + (number == 3))) == (1, BAD, BAD, WORSE)


def test_map_all_ok_puts_the_outcomes_back_in_place() -> None:
    def doubled(numbers: list[int]) -> list[Outcome[int]]:
        assert numbers == [1, 3]
        return [2, WORSE]

    assert MIXED.map_all_ok(doubled) == (2, BAD, WORSE, WORSE)


def test_map_all_ok_calls_nothing_when_no_entry_is_good() -> None:
    def refuse(numbers: list[int]) -> list[int]:
        raise AssertionError(numbers)

    assert Outcomes[int]([BAD]).map_all_ok(refuse) == (BAD,)


def test_merge_replaces_the_outcomes_at_the_indexes() -> None:
    assert MIXED.merge({1: 2, 2: WORSE}) == (1, 2, WORSE, WORSE)


@pytest.mark.parametrize(
    ("block", "error", "maybe_applied"),
    [
        (errors_maybe_applied(), RETRIABLE, True),
        (errors_maybe_applied(), FINAL, False),
        (errors_of_a_late_attempt(maybe_applied=True), RETRIABLE, True),
        (errors_of_a_late_attempt(maybe_applied=True), FINAL, True),
        (errors_of_a_late_attempt(maybe_applied=False), FINAL, False),
    ],
)
def test_errors_of_the_block_are_marked(
    block: AbstractContextManager[None], error: PenstockError, maybe_applied: bool
) -> None:
    with pytest.raises(PenstockError) as caught, block:
        raise error
    assert (caught.value.code, caught.value.maybe_applied) == (error.code, maybe_applied)
    assert not error.maybe_applied


def test_marked_error_is_another_one_with_the_same_facts() -> None:
    marked = as_maybe_applied(RETRIABLE)
    assert (marked.message, marked.facts, marked.maybe_applied) == ("later", {"limit": 1}, True)
    assert not RETRIABLE.maybe_applied
