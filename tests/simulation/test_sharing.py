"""Share groups keep their promises (G11) under seeded schedules and faults."""

from collections import Counter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import run

SEEDS = 60


def test_share_groups_keep_their_promises_whatever_fails() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        result = run(seed, "sharing")
        if result.failure is not None:
            pytest.fail(explain(result), pytrace=False)
        counts += result.faults
    # The runs were worth something: each kind of end and each kind of race was there.
    for event in ("accept ok", "accept done", "accept LOCK_LOST", "release ok", "reject ok", "renew ok", "worker died"):
        assert counts[f"share {event}"] > 3, event
    for event in ("record buried", "record buried without reject", "record handed out again", "group reset"):
        assert counts[f"share {event}"] > 3, event
