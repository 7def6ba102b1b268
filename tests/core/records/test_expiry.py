import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import EXPIRES_IN_MS_MAX
from penstock_core.records.codec import Headers
from penstock_core.records.expiry import (
    EXPIRES_AT_HEADER,
    check_expiry,
    expires_at_ms,
    has_expiry,
    is_expired,
    with_expiry,
)

NOW = 1_790_000_000_000


def header(value: bytes | None) -> Headers:
    return [("trace", b"x"), (EXPIRES_AT_HEADER, value)]


@given(st.integers(10**12, 10**13 - 1 - EXPIRES_IN_MS_MAX), st.integers(1, EXPIRES_IN_MS_MAX))
def test_record_expires_so_long_after_its_begin_and_not_before(from_ms: int, expires_in_ms: int) -> None:
    headers = with_expiry([("trace", b"x")], expires_in_ms, from_ms)
    assert headers == header(str(from_ms + expires_in_ms).encode())
    check_expiry(headers)
    assert has_expiry(headers)
    assert expires_at_ms(headers) == from_ms + expires_in_ms
    assert not is_expired(headers, from_ms + expires_in_ms - 1)
    assert is_expired(headers, from_ms + expires_in_ms)


@pytest.mark.parametrize("headers", [[], [("trace", b"1790000000000")], [("Penstock-Expires-At", b"1790000000000")]])
def test_record_without_the_header_does_not_expire(headers: Headers) -> None:
    check_expiry(headers)
    assert not has_expiry(headers)
    assert not is_expired(headers, 10**15)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"1790000000",  # seconds
        b"1790000000000000",  # microseconds
        b"1790000000000000000",  # nanoseconds
        b"0000000000000",  # 13 digits, and 1970
        b"0999999999999",
        b"-179000000000",
        b"+179000000000",
        b"17900000000.0",
        b"179000000000 ",
        b"1_90000000000",
        "١٧٩٠٠٠٠٠٠٠٠٠٠".encode(),
        b"\xff" * 13,
        b"9" * 1_000_000,
    ],
)
def test_value_that_is_no_time_never_expires_and_a_check_refuses_it(value: bytes | None) -> None:
    assert has_expiry(header(value))
    assert expires_at_ms(header(value)) is None
    assert not is_expired(header(value), 10**15)
    with pytest.raises(PenstockError, match="13 decimal digits") as caught:
        check_expiry(header(value))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert len(caught.value.message) < 300


def test_header_that_stands_twice_never_expires_and_a_check_refuses_it() -> None:
    twice = [*header(b"1790000000000"), *header(b"1790000000000")]
    assert has_expiry(twice)
    assert not is_expired(twice, 10**15)
    with pytest.raises(PenstockError, match="2 times"):
        check_expiry(twice)


@pytest.mark.parametrize("expires_in_ms", [0, -1, EXPIRES_IN_MS_MAX + 1, 10**400, True, 1.5, "1000", None])
def test_duration_outside_of_its_bounds_is_refused(expires_in_ms: object) -> None:
    with pytest.raises(PenstockError, match="expires_in_ms") as caught:
        with_expiry([], expires_in_ms, NOW)  # type: ignore[arg-type]  # what a caller may pass
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_duration_next_to_a_header_is_refused() -> None:
    with pytest.raises(PenstockError, match="one of them"):
        with_expiry(header(b"1790000000000"), 1_000, NOW)


@pytest.mark.parametrize("from_ms", [0, 10**12 - 1_001, 10**13 - 1_000])
def test_clock_outside_of_the_thirteen_digits_is_refused(from_ms: int) -> None:
    with pytest.raises(PenstockError, match="set the clock"):
        with_expiry([], 1_000, from_ms)
