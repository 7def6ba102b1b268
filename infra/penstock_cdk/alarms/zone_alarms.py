"""Alarms on the zones: a segment without a good copy, and a zone that does not come back in sync.

They watch metrics that the functions emit (namespace `Penstock`, one dimension: the stage). docs/how-to/operate.md says
what to do when one rings.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.settings import METRICS_NAMESPACE, StageSettings

_PERIOD = Duration.minutes(5)
_BEHIND_PERIODS = 12  # an hour


class ZoneAlarms(Construct):
    """`segment-lost` and `zone-behind`, each behind the stage's name."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        ring(
            self,
            "segment-lost",
            "a committed segment has no good copy left",
            self._metric("segment_lost", "Sum"),
            settings=settings,
        )
        ring(
            self,
            "zone-behind",
            "a zone has not been in sync for an hour",
            self._metric("zones_behind", "Minimum"),
            settings=settings,
            periods=_BEHIND_PERIODS,
        )

    def _metric(self, name: str, statistic: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self._settings.name},
            period=_PERIOD,
            statistic=statistic,
        )
