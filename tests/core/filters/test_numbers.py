"""Which bytes of a header are a number, and which number."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.filters.numbers import read_number
from penstock_core.limits import FILTER_NUMBER_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "number"), [(b"100", 100), (b"1e2", 100), (b"-0.5", Decimal("-0.5")), (b"+7", 7), (b"100.0", 100)]
)
def test_decimal_text_is_its_number(text: bytes, number: Decimal | int) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize(
    "text", [b"", b" 1", b"1_000", b"NaN", b"Infinity", b"0x10", b"1e100", b"1e-100", "١".encode()]
)
def test_other_text_is_no_number(text: bytes) -> None:
    assert read_number(text) is None


@given(st.binary(max_size=2 * FILTER_NUMBER_BYTES_MAX))
def test_any_bytes_are_a_number_of_bounded_length_or_none(text: bytes) -> None:
    number = read_number(text)
    assert number is None or (number.is_finite() and len(text) <= FILTER_NUMBER_BYTES_MAX)


@given(st.integers(min_value=-(10**20), max_value=10**20))
def test_whole_numbers_are_read_exactly(number: int) -> None:
    assert read_number(str(number).encode()) == number
