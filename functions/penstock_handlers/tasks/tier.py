"""The task `tier`: moves segments that have grown old from the zones to the archive."""

import os
from typing import Any

from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance


def run(instance: Instance) -> dict[str, Any]:
    """Serves the partitions in turn, until its time is over. Reads `PENSTOCK_TIER_BUDGET_MS`."""
    done = tier(instance, budget_ms=int(os.environ["PENSTOCK_TIER_BUDGET_MS"]))
    return {
        "partitions_tiered": done.partitions,
        "portions_tiered": done.portions,
        "partitions_held": done.held,
        "tiered_bytes": done.bytes_moved,
        "zone_bytes_stale": done.bytes_stale,
        "tiering_failed": done.failures,
        "tiering_unfinished": int(not done.is_finished),
    }
