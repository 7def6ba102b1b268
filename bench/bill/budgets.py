"""The budgets of the bill, in dollars. A change that makes something dearer fails the tests that hold them.

Lower a budget when the bill falls. Raise one only with a reason in the commit.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that one operation may cost: dollars of a million, and storage calls with its share of a roll."""

    usd_per_million: float
    storage_calls: float


# By profile, then by operation. An append has one put for each zone, one update, and 1/16 of a roll of two writes. An
# acquire that accepts the records of the one before has two reads, one update, and a get of the records.
OPERATIONS: Mapping[str, Mapping[str, Budget]] = {
    "express3": {
        "append of 1 KB": Budget(usd_per_million=5.95, storage_calls=4.125),
        "append of 64 KB": Budget(usd_per_million=6.60, storage_calls=4.125),
        "append of 1 MB": Budget(usd_per_million=16.85, storage_calls=4.125),
        "append of 1 KB that wakes": Budget(usd_per_million=8.00, storage_calls=5.125),
        "fetch of 1 KB": Budget(usd_per_million=1.85, storage_calls=2.0625),
        "acquire and accept 1 of 1 KB": Budget(usd_per_million=2.95, storage_calls=5.0),
        "acquire and accept 100 of 1 KB": Budget(usd_per_million=3.00, storage_calls=5.0),
    },
    "express2": {
        "append of 1 KB": Budget(usd_per_million=4.80, storage_calls=3.125),
        "append of 64 KB": Budget(usd_per_million=5.25, storage_calls=3.125),
        "append of 1 MB": Budget(usd_per_million=12.45, storage_calls=3.125),
        "append of 1 KB that wakes": Budget(usd_per_million=6.85, storage_calls=4.125),
        "fetch of 1 KB": Budget(usd_per_million=1.85, storage_calls=2.0625),
        "acquire and accept 1 of 1 KB": Budget(usd_per_million=2.95, storage_calls=5.0),
        "acquire and accept 100 of 1 KB": Budget(usd_per_million=3.00, storage_calls=5.0),
    },
    "standard1": {
        "append of 1 KB": Budget(usd_per_million=7.55, storage_calls=2.125),  # the design allows 9
        "append of 64 KB": Budget(usd_per_million=7.60, storage_calls=2.125),
        "append of 1 MB": Budget(usd_per_million=8.75, storage_calls=2.125),
        "append of 1 KB that wakes": Budget(usd_per_million=9.60, storage_calls=3.125),
        "fetch of 1 KB": Budget(usd_per_million=2.20, storage_calls=2.0625),
        "acquire and accept 1 of 1 KB": Budget(usd_per_million=3.30, storage_calls=5.0),
        "acquire and accept 100 of 1 KB": Budget(usd_per_million=3.30, storage_calls=5.0),
    },
}

# A consumer of six partitions that gets nothing, a day: one that polls, and one that waits for wake-ups.
POLLING_CONSUMER_USD_PER_DAY = 2.05
WAITING_CONSUMER_USD_PER_DAY = 0.0048  # the design allows 0.005; quotas and access rules are read once a minute
WAITING_WORKER_USD_PER_DAY = 0.006  # it reads the states of the share group, too
# A member of a group that gets nothing, by its session's timeout in ms. Heartbeats are more than the design allows.
WAITING_MEMBER_USD_PER_DAY: Mapping[int, float] = {45_000: 0.021, 180_000: 0.008}
WAITING_FUNCTION_S_PER_MINUTE = 0.5  # as the design promises

# A stage that nobody uses, a month, with its alarms and without.
IDLE_STAGE_USD = {"prod": 1.50, "dev@eu-central-1": 0.95}  # the issue allows 1.50
IDLE_STAGE_WITHOUT_ALARMS_USD = {"prod": 0.40, "dev@eu-central-1": 0.05}  # the issue allows 0.40
