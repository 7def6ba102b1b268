"""What stands around every function: a log line, metrics and a trace per request, and the last resort for errors."""

import time
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit

from handlers.http import Event, Result, error_result
from handlers.services import STORAGE_CALLS, broker
from penstock_broker.broker import Broker
from penstock_broker.events import Events
from penstock_core.errors import ErrorCode, PenstockError

Serve = Callable[[Event, Broker], Result]

_logger = Logger()
_metrics = Metrics()
_tracer = Tracer()


def entry_point(serve: Serve) -> Callable[[dict[str, Any], Any], Result]:
    """The function that Lambda calls, around `serve`.

    Adds the headers `Server-Timing` (`total` and `cpu`, milliseconds in this function) and `Penstock-Storage-Calls`
    (`service.Operation=count`, separated by commas) to every answer.
    """

    def handler(event: dict[str, Any], context: Any) -> Result:  # noqa: ARG001 - Lambda passes it
        before = STORAGE_CALLS.snapshot()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        result = answer(serve, event, broker())
        cpu_ms = (time.process_time() - cpu_s) * 1_000
        total_ms = (time.perf_counter() - wall_s) * 1_000
        calls = STORAGE_CALLS.since(before)
        result["headers"] |= {
            "Server-Timing": f"total;dur={total_ms:.2f}, cpu;dur={cpu_ms:.2f}",
            "Penstock-Storage-Calls": ",".join(f"{name}={count}" for name, count in calls.items()),
        }
        _report(event, result, total_ms, cpu_ms, calls)
        report_events(broker().events)
        return result

    observed = _metrics.log_metrics(_logger.inject_lambda_context(handler))
    traced: Callable[[dict[str, Any], Any], Result] = _tracer.capture_lambda_handler(observed, capture_response=False)
    return traced


def answer(serve: Serve, event: Event, to: Broker) -> Result:
    """`serve`, with every error made an answer. A defect may come after a write: it says `maybe_applied`."""
    try:
        return serve(event, to)
    except PenstockError as error:
        return error_result(error)
    except Exception:
        _logger.exception("unexpected error")
        return error_result(
            PenstockError(
                ErrorCode.INTERNAL,
                "an unexpected error, which is ours: the function's log has it under this request's id",
                maybe_applied=True,
            )
        )


def report_events(events: Events) -> None:
    """Metrics and log lines of what the broker has told of."""
    counts, told = events.take()
    for name, facts in told:
        _logger.warning(name, extra={"event": name, **facts})
    for name, count in counts.items():
        _metrics.add_metric(name, MetricUnit.Count, count)


def _report(event: Event, result: Result, total_ms: float, cpu_ms: float, calls: dict[str, int]) -> None:
    request_bytes, response_bytes = len(event.get("body") or ""), len(result.get("body") or "")
    status = result["statusCode"]
    _logger.info(
        "request",
        extra={
            "route": event.get("routeKey"),
            "path": event.get("rawPath"),
            "status": status,
            "request_bytes": request_bytes,
            "response_bytes": response_bytes,
            "total_ms": round(total_ms, 2),
            "cpu_ms": round(cpu_ms, 2),
            "storage_calls": calls,
        },
    )
    _metrics.add_metric("requests_served", MetricUnit.Count, 1)
    _metrics.add_metric("requests_failed", MetricUnit.Count, status >= 500)
    _metrics.add_metric("requests_refused", MetricUnit.Count, 400 <= status < 500)
    _metrics.add_metric("request_duration", MetricUnit.Milliseconds, total_ms)
    _metrics.add_metric("request_cpu", MetricUnit.Milliseconds, cpu_ms)
    _metrics.add_metric("bytes_received", MetricUnit.Bytes, request_bytes)
    _metrics.add_metric("bytes_sent", MetricUnit.Bytes, response_bytes)
    _metrics.add_metric("storage_calls_sent", MetricUnit.Count, sum(calls.values()))
