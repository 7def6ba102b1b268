import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ThrottledError, UnavailableError, UnknownTopicError
from penstock.retry import NEVER_MS, RetryPolicy
from penstock_core.errors import ErrorCode

POLICY = RetryPolicy(backoff_ms=100, backoff_max_ms=5_000)
UNAVAILABLE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "")


@pytest.mark.parametrize(("failures", "bound_ms"), [(1, 100), (2, 200), (3, 400), (7, 5_000), (10_000, 5_000)])
def test_retry_waits_up_to_a_doubling_bound(failures: int, bound_ms: int) -> None:
    at = POLICY.retry_at_ms(UNAVAILABLE, failures=failures, now_ms=0, deadline_ms=NEVER_MS, chance=0.5)
    assert at == bound_ms // 2


@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True))
def test_retry_stays_between_now_and_the_longest_wait(failures: int, chance: float) -> None:
    at = POLICY.retry_at_ms(UNAVAILABLE, failures=failures, now_ms=1_000, deadline_ms=NEVER_MS, chance=chance)
    assert at is not None
    assert 1_000 <= at <= 6_000


def test_retry_comes_after_retry_after_when_the_service_says_so() -> None:
    error = ThrottledError(ErrorCode.THROTTLED, "", retry_after_ms=2_000)
    assert POLICY.retry_at_ms(error, failures=1, now_ms=10, deadline_ms=NEVER_MS, chance=0.0) == 2_010
    assert POLICY.retry_at_ms(error, failures=1, now_ms=10, deadline_ms=NEVER_MS, chance=0.5) == 2_060


def test_retry_is_given_up_when_it_would_come_after_the_deadline() -> None:
    assert POLICY.retry_at_ms(UNAVAILABLE, failures=1, now_ms=0, deadline_ms=50, chance=0.5) == 50
    assert POLICY.retry_at_ms(UNAVAILABLE, failures=1, now_ms=0, deadline_ms=49, chance=0.5) is None


def test_retry_is_given_up_when_it_can_not_help() -> None:
    error = UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "")
    assert POLICY.retry_at_ms(error, failures=1, now_ms=0, deadline_ms=NEVER_MS, chance=0.0) is None


def test_policy_refuses_bounds_that_can_not_be() -> None:
    with pytest.raises(ValueError, match="backoff_ms=200"):
        RetryPolicy(backoff_ms=200, backoff_max_ms=100)
