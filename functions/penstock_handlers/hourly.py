"""The function `hourly`: the tasks that read and write many segments, which schedules start each hour."""

from penstock_handlers.edge.scheduled import Task, task_entry_point
from penstock_handlers.tasks import clean, scrub, tier

handler = task_entry_point(
    {
        "scrub": Task(scrub.run),
        "tier": Task(tier.run),
        "clean": Task(clean.run, watched=("cleaning_bytes_left", "cleaning_bytes_too_large")),
    }
)
