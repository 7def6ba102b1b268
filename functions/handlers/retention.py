"""The scheduled function `retention`: log starts rise, pages go."""

import os
from typing import Any

from handlers.scheduled import scheduled_entry_point
from penstock_broker.broker import Broker
from penstock_broker.retain import retain


def run(broker: Broker) -> dict[str, Any]:
    """Reads `PENSTOCK_BUDGET_MS` and `PENSTOCK_LOG_START_GRACE_MS`."""
    done = retain(
        broker,
        budget_ms=int(os.environ["PENSTOCK_BUDGET_MS"]),
        grace_ms=int(os.environ["PENSTOCK_LOG_START_GRACE_MS"]),
    )
    return {
        "partitions_checked": done.partitions,
        "refs_expired": done.refs_expired,
        "pages_deleted": done.pages_deleted,
        "topics_removed": done.topics_removed,
        "retention_failed": done.failures,
        "retention_unfinished": int(not done.is_finished),
    }


handler = scheduled_entry_point(run)
