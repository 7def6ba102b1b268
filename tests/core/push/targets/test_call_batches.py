from hypothesis import given
from hypothesis import strategies as st

from penstock_core.limits import PUSH_ENTRIES_MAX
from penstock_core.push.targets.kafka_event import call_batches


def test_call_has_ten_entries_at_most() -> None:
    assert call_batches([1] * 21, 1_000) == [[*range(10)], [*range(10, 20)], [20]]


def test_call_has_so_many_bytes_at_most() -> None:
    assert call_batches([60, 40, 1, 99, 100], 100) == [[0, 1], [2, 3], [4]]


def test_entry_that_is_too_large_is_in_no_call() -> None:
    assert call_batches([1, 101, 2], 100) == [[0, 2]]
    assert call_batches([101], 100) == []
    assert call_batches([], 100) == []


@given(st.lists(st.integers(0, 120), max_size=60))
def test_every_entry_that_fits_is_in_one_call_in_order(sizes: list[int]) -> None:
    batches = call_batches(sizes, 100)
    assert [index for batch in batches for index in batch] == [i for i, size in enumerate(sizes) if size <= 100]
    for batch in batches:
        assert 1 <= len(batch) <= PUSH_ENTRIES_MAX
        assert sum(sizes[index] for index in batch) <= 100
