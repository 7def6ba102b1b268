"""The scheduled function `retention`: log starts rise, pages go, and so do offsets that no group needs any more."""

import os
from typing import Any

from handlers.scheduled import scheduled_entry_point
from penstock_broker.broker import Broker
from penstock_broker.expire_offsets import expire_offsets
from penstock_broker.retain import retain

_GROUPS_SHARE = 0.2  # of the time


def run(broker: Broker) -> dict[str, Any]:
    """Reads `PENSTOCK_BUDGET_MS` and `PENSTOCK_LOG_START_GRACE_MS`."""
    budget_ms = int(os.environ["PENSTOCK_BUDGET_MS"])
    done = retain(
        broker,
        budget_ms=budget_ms * (1 - _GROUPS_SHARE),
        grace_ms=int(os.environ["PENSTOCK_LOG_START_GRACE_MS"]),
    )
    expired = expire_offsets(broker, budget_ms=budget_ms * _GROUPS_SHARE)
    return {
        "partitions_checked": done.partitions,
        "refs_expired": done.refs_expired,
        "pages_deleted": done.pages_deleted,
        "topics_removed": done.topics_removed,
        "groups_checked": expired.groups,
        "offsets_expired": expired.offsets_expired,
        "groups_removed": expired.groups_removed,
        "retention_failed": done.failures + expired.failures,
        "retention_unfinished": int(not (done.is_finished and expired.is_finished)),
    }


handler = scheduled_entry_point(run)
