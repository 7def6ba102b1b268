"""Alarms on functions that fail, and on scheduled runs that leave work undone.

Filters on the functions' log groups find both, one for each function and metric. Lambda logs one line `platform.report`
for an invocation that raised, ran out of time or died, and no such line for others (`SYSTEM_LOG_LEVEL`). A task, and
`dispatch`, log one line `run` with the figures that they answer (functions/penstock_handlers). A filter costs nothing,
and neither does a metric that gets no values. docs/how-to/operate.md says what to do when an alarm rings.
"""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.service.tasks import TASKS
from penstock_cdk.settings import HOURLY, METRICS_NAMESPACE, UPKEEP, StageSettings
from penstock_core.routes import ROUTES

FAILING = "functions_failing"
CALLS_FAILED = "calls_failed"  # of functions that callers reach: they met the failure, by HTTP or by Lambda's API
RARE_FAILING = "runs_failed"
# fields of a function's line `run` that are above 0 when work is left undone, or late
UNDONE: Mapping[str, Sequence[str]] = {
    UPKEEP: (
        "retention_failed",
        "raises_late",
        "items_lost",
        "looks_failed",
        "partitions_stuck",
        "mirrors_late",
        "measurements_failed",
        "schedules_failing",
    ),
    HOURLY: ("tiering_failed", "zone_bytes_stale", "cleaning_failed", "cleaning_bytes_late", "batches_left_whole"),
    "sweep": ("sweep_failed", "objects_foreign", "raises_late"),  # and the last if `retention` runs no more
    "dispatch": ("dispatches_failed", "dispatches_late"),
    "promote": ("schedules_postponed", "schedules_late"),
}
# log lines of records that a function could not move or read in time, by the metric that counts them
STUCK: Mapping[str, Mapping[str, Sequence[str]]] = {
    "share": {RARE_FAILING: ("dead_letters_stuck",)},
    "deliver": {
        RARE_FAILING: (
            "dead_letters_stuck",  # of a hidden share group, in parallel mode
            "push_dead_letters_stuck",
            "push_unreadable",
            "push_too_large",
            "push_undecodable",  # records that were passed over, or are dead letters
            "mirror_diverged",
            "mirror_missed",
        ),
        FAILING: ("push_delivery_failed", "push_message_unreadable"),  # storage failed it: its message comes again soon
    },
    "dispatch": {FAILING: ("push_event_unreadable",)},
    "replicate": {FAILING: ("repair_stream_late",)},
}
_CALLED = frozenset(route.function for route in ROUTES)
# A function that runs this seldom rings with its first failure. The other functions may fail twice an hour, because
# their next run is due.
_RARE = Duration.hours(1)


class Failures(Construct):
    """`functions-failing` and `runs-failed`, each behind the stage's name.

    A function with routes that fails counts for `api-5xx`, which is one of `Alarms`, and so does its answer of 5xx.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.Function],
    ) -> None:
        super().__init__(scope, construct_id)
        self._namespace = f"{METRICS_NAMESPACE}/{settings.name}"
        for name, function in functions.items():
            for metric in (CALLS_FAILED, FAILING, RARE_FAILING):
                if patterns := _patterns_of(name, metric):
                    logs.MetricFilter(
                        self,
                        f"{name}-{metric}".replace("_", "-"),
                        log_group=function.log_group,
                        filter_pattern=logs.FilterPattern.any(*patterns),
                        metric_namespace=self._namespace,
                        metric_name=metric,
                        metric_value="1",
                    )
        ring(
            self,
            "functions-failing",
            "functions, targets or schedules fail or are late again and again, or retention leaves work undone",
            self._sum(FAILING, Duration.minutes(5)),
            settings=settings,
            periods=12,
            bad_periods=3,
        )
        ring(
            self,
            "runs-failed",
            "a sweep, scrub, tiering or compaction left work undone, or dead letters have no topic; the logs say what",
            self._sum(RARE_FAILING, _RARE),
            settings=settings,
        )

    def _sum(self, name: str, period: Duration) -> cloudwatch.Metric:
        return cloudwatch.Metric(namespace=self._namespace, metric_name=name, period=period, statistic="Sum")


def _patterns_of(function: str, metric: str) -> list[logs.JsonPattern]:
    """The lines of a function's log that count for the metric."""
    found: list[logs.JsonPattern] = []
    if metric == _metric_of(function):
        found.append(
            _both(
                logs.FilterPattern.string_value("$.type", "=", "platform.report"),
                logs.FilterPattern.string_value("$.record.status", "!=", "success"),
            )
        )
        if fields := UNDONE.get(function):
            above = [logs.FilterPattern.number_value(f"$.{field}", ">", 0) for field in fields]
            found.append(_both(_message("run"), logs.FilterPattern.any(*above)))
    if metric == CALLS_FAILED and function in _CALLED:
        found.append(_both(_message("request"), logs.FilterPattern.number_value("$.status", ">=", 500)))
    return [*found, *map(_message, STUCK.get(function, {}).get(metric, ()))]


def _both(first: logs.JsonPattern, second: logs.JsonPattern) -> logs.JsonPattern:
    return logs.FilterPattern.all(first, second)


def _message(text: str) -> logs.JsonPattern:
    return logs.FilterPattern.string_value("$.message", "=", text)


def _metric_of(function: str) -> str:
    if function in _CALLED:
        return CALLS_FAILED
    rates = [task.rate.to_seconds() for task in TASKS.values() if task.function == function]
    return RARE_FAILING if rates and min(rates) >= _RARE.to_seconds() else FAILING
