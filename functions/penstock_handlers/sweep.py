"""The scheduled function `sweep`: deletes objects that no live ref names."""

import os
from typing import Any

from penstock_handlers.edge.scheduled import scheduled_entry_point
from penstock_service.instance.instance import Instance
from penstock_service.retention.keep_items import count_late
from penstock_service.retention.sweep import sweep


def run(instance: Instance) -> dict[str, Any]:
    """Sweeps what its time allows, from where the run before it stopped.

    Reads `PENSTOCK_BUDGET_MS`, `PENSTOCK_SWEEP_GRACE_MS` and `PENSTOCK_LOG_START_GRACE_MS`.
    """
    done = sweep(
        instance,
        budget_ms=int(os.environ["PENSTOCK_BUDGET_MS"]),
        grace_ms=int(os.environ["PENSTOCK_SWEEP_GRACE_MS"]),
        log_start_grace_ms=int(os.environ["PENSTOCK_LOG_START_GRACE_MS"]),
    )
    return {
        "folders_swept": done.folders,
        "rounds_marked": done.rounds,
        "segments_live": done.live,
        "objects_listed": done.listed,
        "objects_with_old_keys": done.old_keys,
        "objects_deleted": done.deleted,
        "objects_foreign": done.foreign,
        "sweep_failed": done.failures,
        "raises_late": count_late(instance),  # here, too: the walks that should end them may have stopped
        "sweep_unfinished": int(not done.is_finished),
    }


handler = scheduled_entry_point(run)
