"""The scheduled function `sweep`: objects that no live ref names go."""

import os
from typing import Any

from handlers.scheduled import scheduled_entry_point
from penstock_broker.broker import Broker
from penstock_broker.sweep import sweep


def run(broker: Broker) -> dict[str, Any]:
    """Reads `PENSTOCK_BUDGET_MS`, `PENSTOCK_SWEEP_GRACE_MS` and `PENSTOCK_LOG_START_GRACE_MS`."""
    done = sweep(
        broker,
        budget_ms=int(os.environ["PENSTOCK_BUDGET_MS"]),
        grace_ms=int(os.environ["PENSTOCK_SWEEP_GRACE_MS"]),
        log_start_grace_ms=int(os.environ["PENSTOCK_LOG_START_GRACE_MS"]),
    )
    return {
        "prefixes_swept": done.prefixes,
        "rounds_marked": done.rounds,
        "segments_live": done.live,
        "objects_listed": done.listed,
        "objects_deleted": done.deleted,
        "objects_foreign": done.foreign,
        "sweep_failed": done.failures,
        "sweep_unfinished": int(not done.is_finished),
    }


handler = scheduled_entry_point(run)
