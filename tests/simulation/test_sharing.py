"""Share groups keep their promises (G11) under seeded schedules and faults."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import run

# By workload: the seeds, and what they must show to be worth something. Each kind of end and of race was there.
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
    seeds, events = WORKLOADS[workload]
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        result = run(seed, workload)
        if result.failure is not None:
            pytest.fail(explain(result), pytrace=False)
        counts += result.faults
    for event in events:
        assert counts[f"share {event}"] > 3, event
