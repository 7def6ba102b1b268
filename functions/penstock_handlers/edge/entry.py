"""The entry point of a request: metrics and a log line for it, and the last resort for errors.

The line of a request that we failed to serve is a warning. Of the others, an instance logs the first and then each
hundredth at INFO, and all at DEBUG, because a line costs as much as the DynamoDB writes of a small append. API
Gateway's access log has one line for each request anyway.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from penstock_core.direct.function_arn import WAY_HEADER, WAY_REFUSED
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.routes import Route
from penstock_handlers.edge.access.direct_call import DirectCall, direct_call, event_of
from penstock_handlers.edge.access.request_access import access_of, checked_route
from penstock_handlers.edge.http import TOLD, Event, Result, error_result, within_bounds
from penstock_handlers.edge.lambda_function import Stopwatch, logger, meter, observed
from penstock_service.instance.instance import Instance

Serve = Callable[[Event, Instance], Result]
REQUESTS_PER_LINE = 100
_requests = count()


def entry_point(serve: Serve, *, uses_zones: bool = True) -> Callable[[Event, Any], Result]:
    """The function that Lambda calls, around `serve`. `observed` says what `uses_zones` does.

    Every answer gets two more headers. `Server-Timing` has the milliseconds in this function, as `total` and `cpu`.
    `Penstock-Storage-Calls` has `service.Operation=count`, separated by commas.
    """

    def respond(call: Event | DirectCall, to: Instance, stopwatch: Stopwatch) -> Result:
        if isinstance(call, DirectCall):
            event, result = answer_direct(serve, call, to)
        else:
            event, result = call, answer(serve, call, to)
        told = result.pop(TOLD, {})
        cpu_ms, total_ms, calls = stopwatch.cpu_ms(), stopwatch.total_ms(), stopwatch.storage_calls()
        result["headers"] |= {
            "Server-Timing": f"total;dur={total_ms:.2f}, cpu;dur={cpu_ms:.2f}",
            "Penstock-Storage-Calls": ",".join(f"{name}={count}" for name, count in calls.items()),
        }
        _report(event, result, total_ms, cpu_ms, {"storage_calls": calls, **told})
        return result

    measured = observed(respond, uses_zones=uses_zones, is_paced=True)

    def handler(event: Event, context: Any) -> Result:
        return measured(direct_call(event, context) or event, context)

    return handler


def answer_direct(serve: Serve, call: DirectCall, to: Instance) -> tuple[Event, Result]:
    """The request of a direct call, empty if it is refused before it is known, and its answer, as `answer` says."""
    try:
        event = event_of(call, to)
    except PenstockError as error:
        return {}, _way_refused(error_result(error))
    except Exception:
        return {}, _way_refused(_defect(maybe_applied=False))  # no request was begun
    return event, answer(serve, event, to)


def answer(serve: Serve, event: Event, to: Instance) -> Result:
    """The result of `serve`, or the answer for its error. A defect may follow a write, so it says `maybe_applied`.

    A caller without the right on what the path names gets NOT_AUTHORIZED, before `serve`.
    """
    try:
        route = checked_route(event, access_of(event, to))
        return within_bounds(event, _served(serve, event, to, route))
    except PenstockError as error:
        return error_result(error)
    except Exception:
        return _defect(maybe_applied=True)


def _way_refused(result: Result) -> Result:
    """The answer, marked: the function has refused the way by which the call came, and the request was not begun."""
    result["headers"] |= {WAY_HEADER: WAY_REFUSED}
    return result


def _defect(*, maybe_applied: bool) -> Result:
    """The answer for the error that is being handled, which is logged."""
    logger.exception("unexpected error")
    return error_result(
        PenstockError(
            ErrorCode.INTERNAL,
            "an unexpected error, which is ours: the function's log has it under this request's id",
            maybe_applied=maybe_applied,
        )
    )


def _served(serve: Serve, event: Event, to: Instance, route: Route) -> Result:
    if not route.audit:
        return serve(event, to)
    from penstock_handlers.edge.access.audited import with_trail  # and what it reads, which no other route needs

    return with_trail(serve, event, to, route)


def _report(event: Event, result: Result, total_ms: float, cpu_ms: float, facts: dict[str, Any]) -> None:
    request_bytes, response_bytes = len(event.get("body") or ""), len(result.get("body") or "")
    status = result["statusCode"]
    write_line = _line_writer(status)
    write_line(
        "request",
        extra={
            "route": event.get("routeKey"),
            "path": event.get("rawPath"),
            "status": status,
            "request_bytes": request_bytes,
            "response_bytes": response_bytes,
            "total_ms": round(total_ms, 2),
            "cpu_ms": round(cpu_ms, 2),
            **facts,
        },
    )
    meter.add("requests_served", MetricUnit.Count, 1)
    meter.add("requests_failed", MetricUnit.Count, status >= 500)
    meter.add("requests_refused", MetricUnit.Count, 400 <= status < 500)
    meter.add("request_duration", MetricUnit.Milliseconds, total_ms)
    meter.add("request_cpu", MetricUnit.Milliseconds, cpu_ms)
    meter.add("bytes_received", MetricUnit.Bytes, request_bytes)
    meter.add("bytes_sent", MetricUnit.Bytes, response_bytes)
    meter.add("storage_calls_sent", MetricUnit.Count, sum(facts["storage_calls"].values()))


def _line_writer(status: int) -> Callable[..., None]:
    """Returns the logger's method for a request with that status."""
    is_sampled = next(_requests) % REQUESTS_PER_LINE == 0
    if status >= 500:
        return logger.warning
    return logger.info if is_sampled else logger.debug
