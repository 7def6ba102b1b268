"""The metrics of a function instance, as lines in CloudWatch's embedded metric format (EMF).

CloudWatch bills a metric for each hour in which it gets a value, and a log group for each byte. So a zero is never
published, and an instance that serves many requests publishes them together.
"""

from collections.abc import Callable

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

PUBLISHED_EACH_S = 60


class Meter:
    """Collects values, and publishes them when a minute has passed since the last line, or at once on demand.

    The first `end` of an instance publishes. Powertools publishes earlier where one metric has 100 values, which is as
    many as EMF takes. Lambda does not tell an instance that it ends, so a busy instance loses its last minute.
    `clocks` tells the seconds on the monotonic clock and on the wall, because one of them may stand still while Lambda
    freezes the instance. For one thread: Lambda passes one event at a time.
    """

    def __init__(self, metrics: Metrics, clocks: Callable[[], tuple[float, float]]) -> None:
        self._metrics = metrics
        self._clocks = clocks
        self._published_s: tuple[float, float] | None = None

    def add(self, name: str, unit: MetricUnit, value: float) -> None:
        """Adds a value to the metric `name`. A zero is no value."""
        if value:
            self._metrics.add_metric(name, unit, value)

    def end(self, *, is_urgent: bool) -> None:
        """Ends an invocation: publishes what there is, if `is_urgent` or if a minute has passed."""
        if self._metrics.provider.metric_set and (is_urgent or self._is_due()):
            self._metrics.flush_metrics()
            self._published_s = self._clocks()

    def _is_due(self) -> bool:
        if self._published_s is None:
            return True
        return any(now - then >= PUBLISHED_EACH_S for now, then in zip(self._clocks(), self._published_s, strict=True))
