"""The entry point of a function that a schedule starts: one log line per run, and what alarms need to know of it.

CloudWatch bills each metric, and a run's line has all its figures. So a run publishes only what an alarm watches. Other
alarms watch the lines themselves (infra/penstock_cdk/alarms/failures.py).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from penstock_handlers.edge.lambda_function import Stopwatch, logger, meter, observed
from penstock_service.instance.instance import Instance


def scheduled_entry_point(
    run: Callable[[Instance], dict[str, Any]], *, watched: Collection[str] = (), uses_zones: bool = True
) -> Callable[[Mapping[str, Any], Any], dict[str, Any]]:
    """The function that Lambda calls, around `run`. `observed` says what `uses_zones` does.

    Logs and returns the result of `run`. Publishes each of its fields that is `watched` and not 0 as a metric of that
    name. Logs an error and raises it, so that Lambda reports the run as failed.
    """

    def run_once(_event: Mapping[str, Any], to: Instance, stopwatch: Stopwatch) -> dict[str, Any]:
        try:
            done = run(to)
        except Exception:
            logger.exception("run failed")
            raise
        for name in watched:
            meter.add(name, MetricUnit.Count, done[name])
        facts = {"total_ms": round(stopwatch.total_ms(), 2), "storage_calls": stopwatch.storage_calls()}
        logger.info("run", extra={**done, **facts})
        return done

    return observed(run_once, uses_zones=uses_zones)
