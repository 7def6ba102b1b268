"""Small appends in the log table keep the promises of all others, during each kind of work on the log."""

from collections import Counter

import pytest

from tests.simulation.run import run
from tests.simulation.test_simulation import expect_no_failure

QUICK = ("inline,traffic", "inline,rolling,tiering,sweep")
OTHERS = (
    "inline,traffic,recreation",
    "inline,traffic,zone_loss,zone_moves,recover_zones",
    "inline,traffic,transactions",
    "inline,rolling,retention,sweep",
    "inline,compaction,cleaning,sweep",
    "inline,traffic,scrub,repair,replicate",
    "inline,timers,tiering",
    "inline,sharing,accepting",
    "inline,freezing,traffic,tiering",
    "inline,filtering,truncation",
    "inline,pushing",
)
SEEDS = 12


def run_seeds(workloads: str, seeds: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        profile = ("express3", "express2", "standard1")[seed % 3]
        result = run(seed, workloads, profile)
        expect_no_failure(result)
        counts += result.faults
        counts["lost"] += result.lost
    return counts


@pytest.mark.parametrize("workloads", QUICK)
def test_promises_hold_for_small_appends_in_the_log_table(workloads: str) -> None:
    counts = run_seeds(workloads, 2)
    assert counts["inline append"] > 20
    assert counts["lost"] == 0


@pytest.mark.minutes
@pytest.mark.parametrize("workloads", [*QUICK, *OTHERS])
def test_promises_hold_for_small_appends_beside_other_work(workloads: str) -> None:
    counts = run_seeds(workloads, SEEDS)
    assert counts["inline append"] > 10 * SEEDS
    assert counts["lost"] == 0
