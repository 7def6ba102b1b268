"""The arithmetic of a bucket.

The pool of waiting time, as a function's environment names it.
"""

import pytest

from penstock_core.limits import QUOTA_BURST_MS, QUOTA_CHARGE_MS, QUOTA_CHARGED_AHEAD_MS
from penstock_core.quotas.bucket import (
    Bucket,
    WaitPool,
    expected_units,
    format_wait_pool,
    fresh_bucket,
    parse_wait_pool,
    units_to_charge,
)

RATE = 1_000
BURST = RATE * QUOTA_BURST_MS // 1_000


def test_fresh_bucket_has_a_burst_less_what_is_charged() -> None:
    assert fresh_bucket(RATE, 0, 5).credit(5) == BURST
    assert fresh_bucket(RATE, 30, 5).credit(5) == BURST - 30


def test_credit_grows_with_time_and_shrinks_with_charges() -> None:
    bucket = Bucket(rate=RATE, since_ms=0, charged=BURST + 500)
    assert bucket.credit(0) == -500
    assert bucket.credit(500) == 0
    assert bucket.credit(1_500) == RATE


@pytest.mark.parametrize("rate", [1, 3, 999, RATE, 10**12])
@pytest.mark.parametrize("debt", [0, 1, 7, 1_000])
def test_wait_ends_at_the_first_moment_with_credit(rate: int, debt: int) -> None:
    empty = fresh_bucket(rate, 0, 0).credit(0) + debt
    bucket = Bucket(rate=rate, since_ms=0, charged=empty)
    wait_ms = bucket.wait_ms(0)
    assert wait_ms > 0
    assert bucket.credit(wait_ms) >= 1
    assert bucket.credit(wait_ms - 1) <= 0


def test_bucket_with_credit_has_no_wait() -> None:
    assert fresh_bucket(RATE, BURST - 1, 0).wait_ms(0) == 0


def test_bucket_is_overfull_once_more_than_a_burst_is_unused() -> None:
    bucket = Bucket(rate=RATE, since_ms=0, charged=100)
    assert not bucket.is_overfull(100)
    assert bucket.is_overfull(101)


def test_clock_before_the_bucket_gives_the_burst_and_no_more() -> None:
    assert Bucket(rate=RATE, since_ms=1_000, charged=0).credit(0) == BURST


def test_charge_takes_what_is_needed_however_little_credit_there_is() -> None:
    assert units_to_charge(rate=RATE, needed=5_000, expected=0, credit=-3) == 5_000


def test_charge_ahead_is_bounded_by_a_quarter_of_the_credit() -> None:
    assert units_to_charge(rate=RATE, needed=1, expected=10_000, credit=400) == 100
    assert units_to_charge(rate=RATE, needed=1, expected=50, credit=400) == 50
    assert units_to_charge(rate=RATE, needed=1, expected=10_000, credit=0) == RATE * QUOTA_CHARGE_MS // 1_000


def test_expectation_goes_by_the_pace_and_trusts_no_moment_shorter_than_a_second() -> None:
    assert expected_units(20, 10_000) == 20 * QUOTA_CHARGED_AHEAD_MS // 10_000
    assert expected_units(20, 1) == expected_units(20, 1_000)


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
