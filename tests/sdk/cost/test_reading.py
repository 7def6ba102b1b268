"""The requests of a consumer, by its own rhythm."""

import pytest

from penstock.cost.reading import reads_per_s
from penstock.cost.workload import Workload
from penstock.wake_ups.rhythm import wake_up_price
from penstock_core.limits import BATCH_BYTES_MAX


def test_lively_consumer_fetches_five_times_a_second_and_never_sleeps() -> None:
    reads = reads_per_s(Workload(records_per_s=1_000, request_bytes=1_024))
    assert reads.found == pytest.approx(4.76, rel=0.01)
    assert (reads.empty, reads.sleeps) == (0.0, 0.0)


def test_consumer_of_rare_records_sleeps_before_each() -> None:
    reads = reads_per_s(Workload(records_per_s=0.01))
    assert reads.sleeps == pytest.approx(reads.found, rel=0.01)
    assert reads.found == pytest.approx(0.01, rel=0.05)
    assert reads.empty < 0.002


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 1, 2, 5, 20])
def test_chance_costs_at_most_twice_the_better_way(rate: float) -> None:
    reads, price = reads_per_s(Workload(records_per_s=rate)), wake_up_price(6)
    own = reads.found + reads.empty + reads.sleeps * (price - 1)
    assert own <= 2 * min(5.0, rate * price)


def test_fetch_that_is_cut_is_followed_at_once() -> None:
    reads = reads_per_s(Workload(records_per_s=100_000))
    assert reads.found == pytest.approx(100_000 * 1_024 / BATCH_BYTES_MAX)


def test_interval_of_none_asks_by_long_polls() -> None:
    reads = reads_per_s(Workload(records_per_s=1_000, fetch_interval_ms=0))
    assert (reads.found, reads.empty) == (20.0, 0.0)


def test_nothing_comes_and_nothing_is_asked() -> None:
    assert reads_per_s(Workload(records_per_s=0)).fetches == 0.0
