"""The entry point of a function that a schedule starts: one log line and metrics per run, and errors for the alarms."""

from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from penstock_handlers.edge.lambda_function import Stopwatch, logger, metrics, observed
from penstock_service.instance.instance import Instance


def scheduled_entry_point(
    run: Callable[[Instance], dict[str, Any]], *, uses_zones: bool = True
) -> Callable[[Mapping[str, Any], Any], dict[str, Any]]:
    """The function that Lambda calls, around `run`. `observed` says what `uses_zones` does.

    Logs and returns the result of `run`, and publishes each whole number in it as a metric of that name. Logs an error
    and raises it, so that Lambda counts it and tries again.
    """

    def run_once(_event: Mapping[str, Any], to: Instance, stopwatch: Stopwatch) -> dict[str, Any]:
        try:
            done = run(to)
        except Exception:
            logger.exception("run failed")
            raise
        finally:
            metrics.add_metric("run_duration", MetricUnit.Milliseconds, stopwatch.total_ms())
        for name, value in done.items():
            if type(value) is int:
                metrics.add_metric(name, MetricUnit.Count, value)
        logger.info("run", extra={**done, "storage_calls": stopwatch.storage_calls()})
        return done

    return observed(run_once, uses_zones=uses_zones)
