"""The task `look_at_subscriptions`, each five minutes: starts deliveries that nothing else starts any more.

Its rule is off until the first subscription of a stage is made.
"""

from typing import Any

from penstock_service.instance.instance import Instance
from penstock_service.push.look import look

BUDGET_MS = 40_000  # less than the time to the next run


def run(instance: Instance) -> dict[str, Any]:
    """Looks at subscriptions for `BUDGET_MS`. An alarm watches failures, stuck partitions and late mirrors."""
    done = look(instance, budget_ms=BUDGET_MS)
    return {
        "subscriptions_seen": done.subscriptions,
        "deliveries_started": done.messages,
        "partitions_stuck": done.partitions_stuck,
        "mirrors_late": done.mirrors_late,
        "states_removed": done.states_removed,
        "looks_failed": done.failures,
        "look_unfinished": int(not done.is_finished),
    }
