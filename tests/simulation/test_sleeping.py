"""Programs that embed the service lose nothing, and escape no count, however long they sleep between two calls."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import run

# With each of them, the clients of the workload are the programs that sleep.
FEW = {"timers": 6, "claiming": 6, "traffic": 3}
MANY = {
    **dict.fromkeys(("timers", "claiming", "groups", "transactions", "recreation", "timers,transactions"), 60),
    **dict.fromkeys(("traffic", "draining", "sharing", "accepting", "generations", "traffic,commits"), 20),
}


def _expect_no_failure(workload: str, seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, f"{workload},sleeping")
        if result.failure is not None:
            pytest.fail(explain(result), pytrace=False)
        counts += result.faults
    return counts


@pytest.mark.parametrize("workload", FEW)
def test_promises_hold_when_programs_sleep(workload: str) -> None:
    assert _expect_no_failure(workload, range(FEW[workload]))["nap"]


@pytest.mark.minutes
@pytest.mark.parametrize("workload", MANY)
def test_promises_hold_when_programs_sleep_in_many_runs(workload: str) -> None:
    seeds = range(FEW.get(workload, 0), MANY[workload])
    assert _expect_no_failure(workload, seeds)["nap"] > len(seeds) / 4
