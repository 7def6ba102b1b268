"""What stands around a function that a schedule starts: a log line and metrics per run, and errors that alarms see."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit

from handlers.entry import report_events
from handlers.services import STORAGE_CALLS, broker
from penstock_broker.broker import Broker

_logger = Logger()
_metrics = Metrics()
_tracer = Tracer()


def scheduled_entry_point(
    run: Callable[[Broker], dict[str, Any]],
) -> Callable[[Mapping[str, Any], Any], dict[str, Any]]:
    """The function that Lambda calls, around `run`, whose answer is logged and returned. Errors are logged and raised:
    Lambda counts them and tries again."""

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG001 - Lambda passes them
        before = STORAGE_CALLS.snapshot()
        started_s = time.perf_counter()
        try:
            done = run(broker())
        except Exception:
            _logger.exception("run failed")
            raise
        finally:
            report_events(broker().events)
            _metrics.add_metric("run_duration", MetricUnit.Milliseconds, (time.perf_counter() - started_s) * 1_000)
        for name, value in done.items():
            if type(value) is int:
                _metrics.add_metric(name, MetricUnit.Count, value)
        _logger.info("run", extra={**done, "storage_calls": STORAGE_CALLS.since(before)})
        return done

    observed = _metrics.log_metrics(_logger.inject_lambda_context(handler))
    traced: Callable[[Mapping[str, Any], Any], dict[str, Any]] = _tracer.capture_lambda_handler(observed)
    return traced
