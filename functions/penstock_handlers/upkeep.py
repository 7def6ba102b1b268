"""The function `upkeep`: the tasks that schedules start every one to fifteen minutes."""

from penstock_handlers.edge.scheduled import Task, task_entry_point
from penstock_handlers.tasks import audit, look_at_subscriptions, measure, recover_zones, retention

handler = task_entry_point(
    {
        "recover_zones": Task(recover_zones.run, watched=("zones_behind",)),
        "measure": Task(measure.run),
        "audit": Task(audit.run),
        "look_at_subscriptions": Task(look_at_subscriptions.run),
        "retention": Task(retention.run),
    }
)
