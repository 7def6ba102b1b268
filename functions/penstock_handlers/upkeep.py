"""The function `upkeep`: the tasks that schedules start every one to fifteen minutes.

Each gives the figures of its log line.
"""

import os
from collections.abc import Mapping
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.metrics.lag_memory import parse_consumer
from penstock_handlers.edge.meters.traffic_meter import publish
from penstock_handlers.edge.scheduled import Task, task_entry_point
from penstock_service.audit.settle_audit import settle_audit
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.instance.instance import Instance
from penstock_service.metrics.measure import MeasureWish, measure
from penstock_service.push.look import look
from penstock_service.push.subscriptions import keep_deliveries_on
from penstock_service.records.timer_room import keep_switched_on
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.retention.keep_items import keep_items
from penstock_service.retention.retain import retain
from penstock_service.schedules.put_schedule import count_failing

BUDGET_MS = 40_000  # of a task that runs each minute or each five: less than the time to its next run
_GROUPS_SHARE = 0.2  # of the task `retention`'s time
_ITEMS_SHARE = 0.3  # at least, where a raise of a retention has to reach items


def run_recover_zones(instance: Instance) -> dict[str, Any]:
    """Readmits zones that answer again, and catches them up until they are in sync, for `BUDGET_MS` at most.

    `mb_per_s` is the copied bytes over the duration of the whole run. An alarm watches `zones_behind`.
    """
    recovered = recover_zones(instance, BUDGET_MS)
    done = recovered.progress
    return {
        "readmitted": list(recovered.readmitted),
        "in_sync": list(recovered.in_sync),
        "zones_behind": len(recovered.behind),
        "has_ended_pass": recovered.has_ended_pass,
        "refs": done.refs,
        "segments": done.segments,
        "bytes": done.bytes,
        "failures": done.failures,
        "lost": done.lost,
        "duration_ms": round(recovered.duration_ms, 1),
        "mb_per_s": round(done.bytes / 1_000 / max(recovered.duration_ms, 1), 2),
    }


def run_measure(instance: Instance) -> dict[str, Any]:
    """Publishes lag and age of consumers, and chooses the topics with series of their own, for `BUDGET_MS`.

    A stage has the task where its setting `metrics` is not `off`. It reads the variables of `wish_of_environment`.
    """
    done = measure(instance, wish_of_environment(os.environ), budget_ms=BUDGET_MS)
    now_ms = instance.clock.now_ms()
    for lag in done.lags:
        values = {"records_waiting": lag.records, "oldest_waited": lag.oldest_age_ms}
        publish(lag.consumer.kind, lag.consumer.name, values, now_ms)
    return {
        "consumers_measured": done.consumers,
        "consumers_published": len(done.lags),
        "topics_ranked": int(done.has_ranked),
        "measurements_failed": done.failures,
        "measurement_unfinished": int(not done.is_finished),
    }


def wish_of_environment(environ: Mapping[str, str]) -> MeasureWish:
    """Reads the wish.

    `PENSTOCK_METRICS` is `topics` or `all`. `PENSTOCK_METRIC_SERIES` has the numbers of topics and of consumers with
    series of their own, `10,20`. `PENSTOCK_METRICS_ALWAYS` has the consumers with alarms, `<kind>/<name>,…`.
    """
    topics_max, consumers_max = map(int, environ["PENSTOCK_METRIC_SERIES"].split(","))
    always = [parse_consumer(each) for each in environ.get("PENSTOCK_METRICS_ALWAYS", "").split(",") if each]
    return MeasureWish(
        topics_max=topics_max,
        consumers_max=consumers_max,
        always=always,
        topics_only=environ["PENSTOCK_METRICS"] == "topics",
    )


def run_audit(instance: Instance) -> dict[str, Any]:
    """Moves the notes of changes into the topic `_audit`, for `BUDGET_MS`.

    Reads `PENSTOCK_AUDIT_RETENTION_MS`, which the topic gets.
    """
    done = settle_audit(instance, int(os.environ["PENSTOCK_AUDIT_RETENTION_MS"]), budget_ms=BUDGET_MS)
    return {
        "changes_settled": done.settled,
        "changes_begun": done.begun,
        "audit_unfinished": int(not done.is_finished),
    }


def run_look_at_subscriptions(instance: Instance) -> dict[str, Any]:
    """Starts deliveries that nothing else starts any more, for `BUDGET_MS`.

    Its rule is off until the first subscription of a stage is made. An alarm watches failures, stuck partitions and
    late mirrors.
    """
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


def run_retention(instance: Instance) -> dict[str, Any]:
    """Raises log starts, deletes what is no longer needed, keeps timers and deliveries switched on, expires offsets.

    Last, it keeps items after a raise.

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


handler = task_entry_point(
    {
        "recover_zones": Task(run_recover_zones, watched=("zones_behind",)),
        "measure": Task(run_measure),
        "audit": Task(run_audit),
        "look_at_subscriptions": Task(run_look_at_subscriptions),
        "retention": Task(run_retention),
    }
)
