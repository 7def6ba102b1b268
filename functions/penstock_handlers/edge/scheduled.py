"""The entry points of functions that schedules start: one log line per run, and what alarms need to know of it.

CloudWatch bills each metric, and a run's line has all its figures. So a run publishes only what an alarm watches. Other
alarms watch the lines themselves (infra/penstock_cdk/alarms/failures.py).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from penstock_core.errors import shown
from penstock_handlers.edge.lambda_function import Stopwatch, logger, meter, observed
from penstock_service.instance.instance import Instance

Run = Callable[[Instance], dict[str, Any]]
Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """A task that several share a function with. Each field of its result that is `watched` and not 0 is a metric."""

    run: Run
    watched: Collection[str] = ()


def scheduled_entry_point(run: Run) -> Handler:
    """The function that Lambda calls, around `run`.

    Logs and returns the result of `run`. Logs an error and raises it, so that Lambda reports the run as failed.
    """

    def run_once(_event: Mapping[str, Any], to: Instance, stopwatch: Stopwatch) -> dict[str, Any]:
        return _logged(Task(run), {}, to, stopwatch)

    return observed(run_once)


def task_entry_point(tasks: Mapping[str, Task]) -> Handler:
    """As `scheduled_entry_point`, for the task that the event names: `{"task": "retention"}`.

    Lines have the name in the field `task`. Raises ValueError for an event that names none of `tasks`.
    """

    def run_task(event: Mapping[str, Any], to: Instance, stopwatch: Stopwatch) -> dict[str, Any]:
        name = str(event.get("task"))
        if name not in tasks:
            raise ValueError(f"task {shown(name)}: this function has {', '.join(tasks)}")
        return _logged(tasks[name], {"task": name}, to, stopwatch)

    return observed(run_task)


def _logged(task: Task, named: Mapping[str, str], to: Instance, stopwatch: Stopwatch) -> dict[str, Any]:
    try:
        done = task.run(to)
    except Exception:
        logger.exception("run failed", extra=dict(named))
        raise
    for name in task.watched:
        meter.add(name, MetricUnit.Count, done[name])
    facts = {"total_ms": round(stopwatch.total_ms(), 2), "storage_calls": stopwatch.storage_calls()}
    logger.info("run", extra={**named, **done, **facts})
    return done
