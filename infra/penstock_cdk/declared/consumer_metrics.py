"""The metrics of a consumer that a template knows, and the alarm on its age."""

from collections.abc import Callable
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.settings import METRICS_NAMESPACE, StageSettings
from penstock_core.metrics.lag_memory import Consumer

_MINUTE = Duration.minutes(1)
_PERIODS, _BAD_PERIODS = 3, 2
AGE_MS_MIN = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMetrics:
    """The metrics of one group, share group or subscription. They have values in each minute in which it is behind.

    `pin` gives the consumer a series of its own, whatever others there are. It raises ValueError where the stage
    measures no consumers, or has no place left.
    """

    settings: StageSettings
    consumer: Consumer
    pin: Callable[[Consumer], None]

    def oldest_waited(self, statistic: str = "Maximum") -> cloudwatch.Metric:
        """The age of the oldest record that the consumer has not finished, in milliseconds."""
        return self._metric("oldest_waited", statistic)

    def records_waiting(self, statistic: str = "Maximum") -> cloudwatch.Metric:
        """The records that the consumer has not finished."""
        return self._metric("records_waiting", statistic)

    def alarm(self, scope: Construct, age_ms: int) -> cloudwatch.Alarm:
        """Rings when the age was at or above `age_ms` in two of the last three minutes. It costs $0.10 a month.

        Raises ValueError for less than a minute, and as `pin`.
        """
        if age_ms < AGE_MS_MIN:
            raise ValueError(
                f"{self.consumer} has alarm_age_ms={age_ms}: give {AGE_MS_MIN} or more, ages come by the minute"
            )
        return ring(
            scope,
            f"{self.consumer.kind.replace('_', '-')}-{self.consumer.name}-age",
            f"the {self.consumer.kind.replace('_', ' ')} {self.consumer.name} is {age_ms} ms behind",
            self.oldest_waited(),
            settings=self.settings,
            threshold=age_ms,
            periods=_PERIODS,
            bad_periods=_BAD_PERIODS,
        )

    def _metric(self, name: str, statistic: str) -> cloudwatch.Metric:
        self.pin(self.consumer)
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self.settings.name, self.consumer.kind.value: self.consumer.name},
            period=_MINUTE,
            statistic=statistic,
        )
