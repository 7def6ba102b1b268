"""The pool of waiting time, as a function's environment names it."""

import pytest

from penstock_core.quotas.wait_pool import WaitPool, format_wait_pool, parse_wait_pool


def test_pool_is_what_it_was_when_it_went_through_the_environment() -> None:
    pool = WaitPool(name="records_fetch", instances=22)
    assert parse_wait_pool(format_wait_pool(pool)) == pool


def test_there_is_no_pool_when_the_variable_is_missing() -> None:
    assert parse_wait_pool(None) is None


@pytest.mark.parametrize("text", ["", "fetch", "=5", "fetch=", "fetch=-1", "fetch=5.5", "fetch=٥"])
def test_text_that_is_no_pool_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match=f"PENSTOCK_WAITS={text!r}"):
        parse_wait_pool(text)


def test_each_instance_is_a_second_of_waiting_in_a_second() -> None:
    assert WaitPool(name="stage", instances=50).rate == 50_000
