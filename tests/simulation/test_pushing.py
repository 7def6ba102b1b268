"""Push subscriptions keep their promise (G13) under seeded schedules and faults."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import Result, run

# By workload: the seeds that show each kind of trouble. `make test` runs a fifth of them.
WORKLOADS = {
    "pushing": 50,
    "pushing,truncation": 20,
    "pushing,zone_loss": 10,
    "pushing,timers": 15,
    "pushing,transactions": 10,
}
EVENTS = {
    *("drained", "delete", "keep", "look", "frozen", "died", "outage", "poison", "lethal"),
    *("pause", "resume", "alter", "recreate", "topic widened", "mode INVALID_CONFIG", "start INVALID_CONFIG"),
}
FAILURES = ("throttled", "broken", "refused", "late", "partly", "hanging")  # of single invocations
FAULTS = {"doubled delivery", "lost message", "killed before", "killed after"}


def test_subscriptions_keep_their_promise_whatever_fails() -> None:
    for workload, seeds in WORKLOADS.items():
        for seed in range(seeds // 5):
            _run(seed, workload)


@pytest.mark.minutes
def test_subscriptions_keep_their_promise_in_each_kind_of_trouble() -> None:
    counts: Counter[str] = Counter()
    killed = 0
    for workload, seeds in WORKLOADS.items():
        for seed in range(seeds):
            result = _run(seed, workload)
            counts += result.faults
            killed += any(fault.startswith("killed") for fault in result.faults)
    for event in EVENTS:
        assert counts[f"push {event}"] > 0, event
    assert sum(counts[f"push {failure}"] for failure in FAILURES) > 10
    for fault in FAULTS:
        assert counts[fault] > 3, fault
    assert killed > sum(WORKLOADS.values()) / 2, "deliveries are killed in most runs"


def _run(seed: int, workload: str) -> Result:
    result = run(seed, workload)
    if result.failure is not None:
        pytest.fail(explain(result), pytrace=False)
    return result
