"""Alarms per function: errors, throttles, and a 99th percentile of duration near the function's timeout."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.alarm_action import tell_operators
from infra.settings import StageSettings

_PERIOD = Duration.minutes(1)
_PERIODS = 5
_DURATION_PERCENT_MAX = 90  # of the function's timeout


class Alarms(Construct):
    """Three alarms per function, named `<function>-errors`, `-throttles` and `-duration-p99`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.Function],
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        for name, function in functions.items():
            self._watch(name, function)

    def _watch(self, name: str, function: lambda_.Function) -> None:
        timeout_ms = self._settings.function_sizes[name].timeout_s * 1000
        for suffix, metric, threshold, bad_periods in (
            ("errors", function.metric_errors(period=_PERIOD, statistic="Sum"), 1, 1),
            ("throttles", function.metric_throttles(period=_PERIOD, statistic="Sum"), 1, 1),
            (
                "duration-p99",
                function.metric_duration(period=_PERIOD, statistic="p99"),
                timeout_ms * _DURATION_PERCENT_MAX // 100,
                3,
            ),
        ):
            alarm = cloudwatch.Alarm(
                self,
                f"{name}-{suffix}",
                alarm_name=f"{self._settings.name}-{name.replace('_', '-')}-{suffix}",
                alarm_description=f"Penstock function {name}: {suffix.replace('-', ' ')}",
                metric=metric,
                threshold=threshold,
                comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
                evaluation_periods=_PERIODS,
                datapoints_to_alarm=bad_periods,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            )
            tell_operators(alarm, self._settings)
