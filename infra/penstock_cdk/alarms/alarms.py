"""Alarms on what callers meet: calls that fail, refused calls, slow appends, throttled tables.

Each alarm watches one metric for the stage as a whole. An alarm per function would cost $1.40 a month for each question
that it asks. Most metrics are AWS's own, and cost nothing. `calls_failed` is ours, because API Gateway sees no call by
Lambda's API: filters count it in the logs, and it costs nothing while no call fails. docs/how-to/operate.md says what
to do when an alarm rings.
"""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.alarms.failures import CALLS_FAILED
from penstock_cdk.settings import METRICS_NAMESPACE, StageSettings

_MINUTE = Duration.minutes(1)
_SLOW_PERCENT = 90  # of the function's timeout


class Alarms(Construct):
    """`api-5xx`, `concurrency`, `log-writes-throttled` and `produce-slow`, each behind the stage's name.

    `api-5xx` counts what API Gateway answers, by its access log, and what functions answer, by theirs. So it sees calls
    by HTTP, with tokens or without, and those that invoke a function. The first three ring when it happened in three of
    the last fifteen minutes. So neither one cold start that takes too long nor one burst rings them. `stop_a_release`
    has those that tell of a new version that fails its callers.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.Function],
        access_log: logs.ILogGroup,
        log_table: dynamodb.ITable,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        failing = self._watch_calls(access_log)
        # Without a dimension, Lambda counts all functions of the account and region, which share its concurrency.
        self._watch_again_and_again(
            "concurrency",
            "Lambda refuses calls of functions in this account and region",
            cloudwatch.Metric(namespace="AWS/Lambda", metric_name="Throttles", period=_MINUTE, statistic="Sum"),
        )
        self._watch_again_and_again(
            "log-writes-throttled",
            "DynamoDB refuses writes of the log table",
            cloudwatch.Metric(
                namespace="AWS/DynamoDB",
                metric_name="WriteThrottleEvents",
                dimensions_map={"TableName": log_table.table_name},
                period=_MINUTE,
                statistic="Sum",
            ),
        )
        slow = ring(
            self,
            "produce-slow",
            "appends take most of their function's time",
            functions["produce"].metric_duration(period=_MINUTE, statistic="p99"),
            settings=settings,
            threshold=settings.function_sizes["produce"].timeout_s * 1_000 * _SLOW_PERCENT // 100,
            periods=5,
            bad_periods=3,
        )
        self.stop_a_release = (failing, slow)

    def _watch_calls(self, access_log: logs.ILogGroup) -> cloudwatch.Alarm:
        """A call by HTTP may count twice: in the access log, and in that of its function, where `Failures` counts."""
        namespace = f"{METRICS_NAMESPACE}/{self._settings.name}"
        logs.MetricFilter(
            self,
            "access-log-calls-failed",
            log_group=access_log,
            filter_pattern=logs.FilterPattern.string_value("$.status", "=", "5*"),
            metric_namespace=namespace,
            metric_name=CALLS_FAILED,
            metric_value="1",
        )
        metric = cloudwatch.Metric(namespace=namespace, metric_name=CALLS_FAILED, period=_MINUTE, statistic="Sum")
        return self._watch_again_and_again("api-5xx", "calls by HTTP or by Lambda's API are answered 5xx", metric)

    def _watch_again_and_again(self, name: str, description: str, metric: cloudwatch.Metric) -> cloudwatch.Alarm:
        return ring(self, name, description, metric, settings=self._settings, periods=15, bad_periods=3)
