"""Push subscriptions keep their promise (G13) under seeded schedules and faults."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import run

# By workload: the seeds. Each kind of trouble was there.
WORKLOADS = {
    "pushing": 50,
    "pushing,truncation": 20,
    "pushing,zone_loss": 10,
    "pushing,timers": 15,
    "pushing,transactions": 10,
}
EVENTS = {
    *("drained", "delete", "keep", "outage", "poison", "throttled", "broken", "late", "partly"),
    *("pause", "resume", "alter", "topic widened"),
}


def test_subscriptions_keep_their_promise_whatever_fails() -> None:
    counts: Counter[str] = Counter()
    for workload, seeds in WORKLOADS.items():
        for seed in range(seeds):
            result = run(seed, workload)
            if result.failure is not None:
                pytest.fail(explain(result), pytrace=False)
            counts += result.faults
    for event in EVENTS:
        assert counts[f"push {event}"] > 0, event
    assert counts["doubled delivery"] > 3
