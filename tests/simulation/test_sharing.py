"""Share groups keep their promises (G11) under seeded schedules and faults."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import Result, run

# By workload: the seeds, and what they must show to be worth something. Each kind of end and of race was there.
# `make test` runs a fifth of the seeds.
WORKLOADS = {
    "sharing": (
        60,
        [
            *("accept ok", "accept done", "accept LOCK_LOST", "release ok", "reject ok", "renew ok", "worker died"),
            *("record buried", "record buried without reject", "record handed out again", "record filtered out"),
            *("group reset", "group deleted", "topic widened"),
        ],
    ),
    "accepting": (
        40,
        [
            *("record handed out again", "transaction committed", "transaction lost its lock", "transaction fenced"),
        ],
    ),
    "repeating": (10, ["accept ok", "accept done", "record handed out again"]),
    "redriving": (30, ["record redriven", "worker died"]),
    "waking": (30, ["worker slept", "worker woken", "worker looks again", "release ok"]),
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_share_groups_keep_their_promises_whatever_fails(workload: str) -> None:
    seeds, _ = WORKLOADS[workload]
    for seed in range(seeds // 5):
        _run(seed, workload)


@pytest.mark.minutes
@pytest.mark.parametrize("workload", WORKLOADS)
def test_share_groups_keep_their_promises_in_each_kind_of_end_and_race(workload: str) -> None:
    seeds, events = WORKLOADS[workload]
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        counts += _run(seed, workload).faults
    for event in events:
        assert counts[f"share {event}"] > 3, event


def _run(seed: int, workload: str) -> Result:
    result = run(seed, workload)
    if result.failure is not None:
        pytest.fail(explain(result), pytrace=False)
    return result
