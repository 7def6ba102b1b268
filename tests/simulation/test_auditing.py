"""The audit trail has no holes (docs/adr/0047) under seeded schedules and faults."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import run

SEEDS = 15


def _expect_no_holes(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, "auditing")
        if result.failure is not None:
            pytest.fail(explain(result), pytrace=False)
        counts += result.faults
    return counts


def test_each_change_is_in_the_trail_and_no_other_is_done_whatever_fails() -> None:
    counts = _expect_no_holes(range(SEEDS))
    assert counts.keys() >= {"killed before", "killed after", "lost reply"}


@pytest.mark.minutes
def test_each_change_is_in_the_trail_in_many_runs() -> None:
    counts = _expect_no_holes(range(SEEDS, 400))
    assert counts.keys() >= {"late effect", "repeated", "lost answer"}
