"""Counts of principals hold (docs/adr/0053) under seeded schedules and faults."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import run

SEEDS = 15


def _expect_counts_to_hold(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, "claiming")
        if result.failure is not None:
            pytest.fail(explain(result), pytrace=False)
        counts += result.faults
    return counts


def test_principals_never_have_more_than_their_counts_and_can_fill_them_whatever_fails() -> None:
    counts = _expect_counts_to_hold(range(SEEDS))
    assert counts["quota exceeded"] > SEEDS
    assert counts.keys() >= {"killed before", "killed after", "lost reply", "lost answer"}


@pytest.mark.minutes
def test_principals_never_have_more_than_their_counts_in_many_runs() -> None:
    counts = _expect_counts_to_hold(range(SEEDS, 500))
    assert counts.keys() >= {"late effect", "repeated"}
