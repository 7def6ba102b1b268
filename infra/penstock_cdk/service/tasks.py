"""What schedules start: each task, the function that does it, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration

from penstock_cdk.service.measuring import MEASURE
from penstock_cdk.service.push import LOOK
from penstock_cdk.service.timers import PROMOTE
from penstock_cdk.settings import HOURLY, UPKEEP, StageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task: the function that does it each `rate`. The function has another name if it does several tasks."""

    function: str
    rate: Duration


TASKS: Mapping[str, Task] = {
    "recover_zones": Task(function=UPKEEP, rate=Duration.minutes(1)),
    PROMOTE: Task(function=PROMOTE, rate=Duration.minutes(1)),
    MEASURE: Task(function=UPKEEP, rate=Duration.minutes(1)),
    "audit": Task(function=UPKEEP, rate=Duration.minutes(5)),
    LOOK: Task(function=UPKEEP, rate=Duration.minutes(5)),
    "retention": Task(function=UPKEEP, rate=Duration.minutes(15)),
    "scrub": Task(function=HOURLY, rate=Duration.hours(1)),
    "tier": Task(function=HOURLY, rate=Duration.hours(1)),
    "clean": Task(function=HOURLY, rate=Duration.hours(1)),
    "sweep": Task(function="sweep", rate=Duration.days(1)),
}
_SWEEP_WHERE_TIERED = Task(function="sweep", rate=Duration.hours(3))  # moved bytes leave within a day (docs/adr/0030)
ZONE_REPAIRS = ("recover_zones", "scrub")  # without work where there is one zone


def tasks_of(settings: StageSettings) -> Mapping[str, Task]:
    """The tasks that the stage runs, by name.

    With one zone there is no copy to repair. Only zones that cost more than the archive are tiered.
    """
    without = {
        *(() if settings.repairs_zones else ZONE_REPAIRS),
        *(() if settings.tiers_zones else ("tier",)),
        *(() if settings.compaction_bytes_per_day else ("clean",)),
        *(() if settings.metrics.is_on else (MEASURE,)),
    }
    tasks = {name: task for name, task in TASKS.items() if name not in without}
    return {**tasks, "sweep": _SWEEP_WHERE_TIERED} if settings.tiers_zones else tasks
