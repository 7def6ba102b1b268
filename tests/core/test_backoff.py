from hypothesis import given
from hypothesis import strategies as st

from penstock_core.backoff import full_jitter_ms, look_again_ms

FRACTIONS = st.floats(0, 1, exclude_max=True)


@given(st.integers(0, 10_000), st.floats(0, 1e6), st.floats(0, 1e6), FRACTIONS)
def test_wait_is_never_negative_nor_above_the_cap(attempt: int, base_ms: float, cap_ms: float, fraction: float) -> None:
    assert 0 <= full_jitter_ms(attempt, base_ms, cap_ms, fraction) <= cap_ms


def test_wait_doubles_with_each_attempt_up_to_the_cap() -> None:
    assert [full_jitter_ms(attempt, 10, 60, 0.5) for attempt in range(5)] == [5, 10, 20, 30, 30]


@given(st.integers(0, 40), FRACTIONS, FRACTIONS)
def test_wait_grows_with_the_fraction(attempt: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert full_jitter_ms(attempt, 10, 1_000, low) <= full_jitter_ms(attempt, 10, 1_000, high)


def test_wait_until_the_next_look_is_a_part_of_all_waiting_within_bounds() -> None:
    assert [look_again_ms(waited, 1_000, 30_000, 10) for waited in (0, 9_999, 20_000, 10**9)] == [
        1_000,
        1_000,
        2_000,
        30_000,
    ]
