"""Alarms on functions that fail, and on scheduled runs that leave work undone.

Filters on the functions' log groups find both. Lambda logs one line `platform.report` for an invocation that raised,
ran out of time or died, and no such line for others (`SYSTEM_LOG_LEVEL`). A scheduled function, and `dispatch`, log one
line `run` with the figures that it answers (functions/penstock_handlers). A filter costs nothing, and neither does a
metric that gets no values. docs/how-to/operate.md says what to do when an alarm rings.
"""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.service.schedules import RATES
from penstock_cdk.settings import METRICS_NAMESPACE, StageSettings

FAILING = "functions_failing"
RARE_FAILING = "runs_failed"
# function and field of its line `run` that is above 0 when work is left undone, or late
UNDONE = (
    ("retention", "retention_failed"),
    ("sweep", "sweep_failed"),
    ("sweep", "objects_foreign"),
    ("tier", "tiering_failed"),
    ("tier", "zone_bytes_stale"),
    ("dispatch", "dispatches_failed"),
    ("dispatch", "dispatches_late"),
    ("look_at_subscriptions", "looks_failed"),
    ("look_at_subscriptions", "partitions_stuck"),
    ("measure", "measurements_failed"),
)
# function, the log line that tells of records which it could not move or read, and the metric that counts it
STUCK = (
    ("share", "dead_letters_stuck", RARE_FAILING),
    ("deliver", "dead_letters_stuck", RARE_FAILING),  # of a hidden share group, in parallel mode
    ("deliver", "push_dead_letters_stuck", RARE_FAILING),
    ("deliver", "push_unreadable", RARE_FAILING),
    ("deliver", "push_too_large", RARE_FAILING),
    ("deliver", "push_undecodable", RARE_FAILING),  # records that were passed over, or are dead letters
    ("deliver", "push_delivery_failed", FAILING),  # storage failed it: its message comes again soon
    ("deliver", "push_message_unreadable", FAILING),
    ("dispatch", "push_event_unreadable", FAILING),
)
# A function that runs this seldom rings with its first failure. The other functions may fail twice an hour, because
# their next run is due.
_RARE = Duration.hours(1)


class Failures(Construct):
    """`functions-failing` and `runs-failed`, each behind the stage's name."""

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
            self._filter(
                f"{name}-fails",
                function,
                _metric_of(name),
                logs.FilterPattern.all(
                    logs.FilterPattern.string_value("$.type", "=", "platform.report"),
                    logs.FilterPattern.string_value("$.record.status", "!=", "success"),
                ),
            )
        for name, field in UNDONE:
            if name not in functions:
                continue
            self._filter(
                field.replace("_", "-"),
                functions[name],
                _metric_of(name),
                logs.FilterPattern.all(
                    logs.FilterPattern.string_value("$.message", "=", "run"),
                    logs.FilterPattern.number_value(f"$.{field}", ">", 0),
                ),
            )
        lines: set[str] = set()
        for name, line, metric in STUCK:
            construct_id = f"{name}-{line}" if line in lines else line
            lines.add(line)
            self._filter(
                construct_id.replace("_", "-"),
                functions[name],
                metric,
                logs.FilterPattern.string_value("$.message", "=", line),
            )
        ring(
            self,
            "functions-failing",
            "functions or targets of subscriptions fail again and again, or retention leaves partitions as they are",
            self._sum(FAILING, Duration.minutes(5)),
            settings=settings,
            periods=12,
            bad_periods=3,
        )
        ring(
            self,
            "runs-failed",
            "a sweep, a scrub or a tiering left work undone, or dead letters have no topic; the logs say what",
            self._sum(RARE_FAILING, _RARE),
            settings=settings,
        )

    def _filter(self, construct_id: str, function: lambda_.Function, metric: str, pattern: logs.IFilterPattern) -> None:
        logs.MetricFilter(
            self,
            construct_id,
            log_group=function.log_group,
            filter_pattern=pattern,
            metric_namespace=self._namespace,
            metric_name=metric,
            metric_value="1",
        )

    def _sum(self, name: str, period: Duration) -> cloudwatch.Metric:
        return cloudwatch.Metric(namespace=self._namespace, metric_name=name, period=period, statistic="Sum")


def _metric_of(function: str) -> str:
    rate = RATES.get(function)
    return RARE_FAILING if rate is not None and rate.to_seconds() >= _RARE.to_seconds() else FAILING
