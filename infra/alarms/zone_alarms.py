"""Alarms on the zones: a segment without a good copy, and a zone that does not come back in sync.

They watch metrics that the functions emit (namespace `Penstock`). docs/how-to/operate.md says what to do when one
rings.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.alarm_action import tell_operators
from infra.settings import METRICS_NAMESPACE, StageSettings, service_name

_PERIOD = Duration.minutes(5)
_BEHIND_PERIODS = 12  # an hour


class ZoneAlarms(Construct):
    """`segment-lost-recover-zones`, `-replicate` and `-scrub`, and `zone-behind`, each behind the stage's name."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        for function in ("recover_zones", "replicate", "scrub"):
            self._watch(
                f"segment-lost-{function.replace('_', '-')}",
                "a committed segment has no good copy left",
                self._metric(function, "segment_lost", "Sum"),
                periods=1,
            )
        self._watch(
            "zone-behind",
            "a zone has not been in sync for an hour",
            self._metric("recover_zones", "zones_behind", "Minimum"),
            periods=_BEHIND_PERIODS,
        )

    def _metric(self, function: str, name: str, statistic: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=name,
            dimensions_map={"service": service_name(self._settings, function)},
            period=_PERIOD,
            statistic=statistic,
        )

    def _watch(self, name: str, description: str, metric: cloudwatch.Metric, *, periods: int) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._settings.name}-{name}",
            alarm_description=f"Penstock: {description}",
            metric=metric,
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=periods,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        tell_operators(alarm, self._settings)
