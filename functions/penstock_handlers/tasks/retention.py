"""The task `retention`: raises log starts, deletes what is no longer needed, and keeps items after a raise."""

import os
from typing import Any

from penstock_core.errors import PenstockError
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.instance.instance import Instance
from penstock_service.push.subscriptions import keep_deliveries_on
from penstock_service.records.timer_room import keep_switched_on
from penstock_service.retention.keep_items import keep_items
from penstock_service.retention.retain import retain
from penstock_service.schedules.put_schedule import count_failing

_GROUPS_SHARE = 0.2  # of the time budget
_ITEMS_SHARE = 0.3  # at least, where a raise of a retention has to reach items


def run(instance: Instance) -> dict[str, Any]:
    """Retains topics, keeps timers and deliveries switched on, expires offsets, and keeps items after a raise.

    Reads `PENSTOCK_RETENTION_BUDGET_MS` and `PENSTOCK_LOG_START_GRACE_MS`.
    """
    budget_ms = int(os.environ["PENSTOCK_RETENTION_BUDGET_MS"])
    started_ms = instance.clock.monotonic_ms()
    done = retain(
        instance,
        budget_ms=budget_ms * (1 - _GROUPS_SHARE - _ITEMS_SHARE),
        grace_ms=int(os.environ["PENSTOCK_LOG_START_GRACE_MS"]),
    )
    keep_switched_on(instance)
    keep_deliveries_on(instance)
    failing = _failing_schedules(instance)
    expired = expire_offsets(instance, budget_ms=budget_ms * _GROUPS_SHARE)
    # Last, so that a raise has all the time that the others have left.
    items = keep_items(instance, budget_ms=started_ms + budget_ms - instance.clock.monotonic_ms())
    return {
        "partitions_checked": done.partitions,
        "refs_expired": done.refs_expired,
        "pages_deleted": done.pages_deleted,
        "topics_removed": done.topics_removed,
        "partitions_retired": done.partitions_retired,
        "groups_checked": expired.groups,
        "offsets_expired": expired.offsets_expired,
        "groups_removed": expired.groups_removed,
        "schedules_failing": failing,
        "items_kept": items.kept,
        "items_lost": items.lost,
        "raises_ended": items.raises_ended,
        "raises_late": items.raises_late,
        "retention_failed": done.failures + expired.failures + items.failures,
        "retention_unfinished": int(not (done.is_finished and expired.is_finished and items.is_finished)),
    }


def _failing_schedules(instance: Instance) -> int:
    """Schedules whose last run failed: the alarm rings until a run succeeds, however seldom they run."""
    try:
        return count_failing(instance)
    except PenstockError as error:
        instance.telemetry.log("schedules_not_read", error=str(error))
        return 0
