"""A Lambda function: the instance that it serves with, and the log line and metrics of each invocation.

Lambda loads a function with a whole core, and mostly before a caller waits for it (the INIT phase). So the instance,
its clients and its sessions are made then. Any other process that imports a handler, such as `penstock dev`, loads no
library of AWS's.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from penstock_core.acls.rule import ALLOW
from penstock_core.acls.tokens import DEFAULT_VARIABLE, acl_settings_of
from penstock_core.quotas.bucket import VARIABLE as WAITS_VARIABLE
from penstock_core.quotas.bucket import parse_wait_pool
from penstock_core.stack_outputs import FUNCTIONS_VARIABLE
from penstock_handlers.edge.meters.traffic_meter import Meter, TrafficMeter
from penstock_service.adapters.storage_calls import RequestCalls, StorageCalls
from penstock_service.instance.instance import Instance, Tuning
from penstock_service.instance.proven_callers import ProvenCallers
from penstock_service.instance.telemetry import Telemetry
from penstock_service.ports.runtime import CloudFormation

E = TypeVar("E")
R = TypeVar("R")

STORAGE_CALLS = StorageCalls()

logger = Logger(use_rfc3339=True)  # the format that Lambda's own log levels ask for
metrics = Metrics()
meter = Meter(metrics, lambda: (time.monotonic(), time.time()))
traffic_meter = TrafficMeter()


@cache
def instance() -> Instance:
    """The instance of this process, made from its environment and then kept.

    Reads the variables of `storage_of_environment`, those of `acl_settings_of`, `PENSTOCK_WAITS` (wait_pool.py),
    `PENSTOCK_DIRECT`, which only functions that take direct calls have, `PENSTOCK_FUNCTIONS`, which the one has that
    tells clients of them, and `PENSTOCK_METRICS`, which is `off` by default. Sends no call.
    """
    from penstock_service.adapters.aws import aws_instance, function_drivers, storage_of_environment

    tuning = Tuning(wait_pool=parse_wait_pool(os.environ.get(WAITS_VARIABLE)))
    # An open stage of the release before has no variable, and an update of a function changes its code and its
    # environment one after the other. Functions that serve no caller have none, either.
    acls = acl_settings_of({DEFAULT_VARIABLE: ALLOW, **os.environ})
    made = aws_instance(storage_of_environment(), STORAGE_CALLS, acls, tuning, function_drivers)
    made.traffic.is_on = os.environ.get("PENSTOCK_METRICS", "off") != "off"
    stage = os.environ.get("PENSTOCK_DIRECT")
    return made if not stage else replace(made, proven_callers=_proven_callers(stage, made))


def _proven_callers(stage: str, made: Instance) -> ProvenCallers:
    """The callers of direct calls, by STS of the function's own region. The emulator sets AWS_ENDPOINT_URL."""
    from penstock_service.adapters.sts import StsIdentities, sts_url

    functions = os.environ.get(FUNCTIONS_VARIABLE, "")
    return ProvenCallers(StsIdentities(sts_url(os.environ)), made.clock, stage, functions)


def cloud_formation() -> CloudFormation:
    """The CloudFormation of AWS. Sends no call."""
    from penstock_service.adapters.cloud_formation import AwsCloudFormation

    return AwsCloudFormation()


class Stopwatch:
    """The time, CPU and storage calls of an invocation since the stopwatch was made."""

    def __init__(self, calls: RequestCalls) -> None:
        self._calls = calls
        self._wall_s = time.perf_counter()
        self._cpu_s = time.process_time()

    def cpu_ms(self) -> float:
        """CPU of this process, all threads together, in milliseconds."""
        return (time.process_time() - self._cpu_s) * 1_000

    def total_ms(self) -> float:
        """Milliseconds on the clock."""
        return (time.perf_counter() - self._wall_s) * 1_000

    def storage_calls(self) -> dict[str, int]:
        """The number of calls by `service.Operation`, sorted by name."""
        return self._calls.so_far()


def observed(
    serve: Callable[[E, Instance, Stopwatch], R], *, uses_zones: bool = True, is_paced: bool = False
) -> Callable[[E, Any], R]:
    """The function that Lambda calls, around `serve`.

    `serve` gets the event, the instance of this process and a running stopwatch. When it ends, by a result or an
    error, the instance's telemetry becomes metrics and log lines. In Lambda, this call makes the instance, too. Leave
    `uses_zones` off for a function that never calls S3, so that it neither makes a client nor opens sessions.
    `is_paced` lets metrics wait for those of later calls (`Meter`), unless the telemetry has something to log.
    """
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        _prepare(uses_zones=uses_zones)

    def handler(event: E, context: Any) -> R:  # noqa: ARG001 - Lambda passes it
        with STORAGE_CALLS.of_request() as calls:
            stopwatch = Stopwatch(calls)
            to = instance()
            with to.telemetry.of_request():
                try:
                    return serve(event, to, stopwatch)
                finally:
                    is_noteworthy = _report(to.telemetry)
                    meter.end(is_urgent=is_noteworthy or not is_paced)
                    traffic_meter.end(to)

    measured: Callable[[E, Any], R] = logger.inject_lambda_context(handler)
    return measured


def _prepare(*, uses_zones: bool) -> None:
    """Makes the instance, and with `uses_zones` the client of S3 and the sessions of directory buckets."""
    made = instance()
    if uses_zones:
        from penstock_service.adapters.aws import open_zones

        open_zones(made)


def _report(telemetry: Telemetry) -> bool:
    """Logs and counts what the use cases noted. True if there was anything to log."""
    counts, entries = telemetry.take()
    for name, facts in entries:
        logger.warning(name, extra={"event": name, **facts})
    for name, count in counts.items():
        meter.add(name, MetricUnit.Count, count)
    return bool(entries)
