"""The metrics of topics that an instance has counted, once a minute.

An instance that serves no more requests keeps the counts of its last minute. So a sum may miss them, and no alarm
depends on one.

Metrics of single topics and consumers, as lines in CloudWatch's embedded metric format (EMF).

Each line has one set of dimensions, so each topic and consumer has a line of its own. `Meter` has the metrics of the
stage as a whole.

The metrics of a function instance, as lines in CloudWatch's embedded metric format (EMF).

CloudWatch bills a metric for each hour in which it gets a value, and a log group for each byte. So a zero is never
published, and an instance that serves many requests publishes them together.
"""

import json
import os
from collections.abc import Callable, Mapping

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from penstock_core.errors import PenstockError
from penstock_core.metrics.lag_memory import by_series
from penstock_service.instance.instance import Instance
from penstock_service.metrics.rank_topics import measured_topics

_MS = 1_000
UNITS: Mapping[str, str] = {
    "records_received": "Count",
    "bytes_received": "Bytes",
    "records_sent": "Count",
    "bytes_sent": "Bytes",
    "requests_failed": "Count",
    "requests_throttled": "Count",
    "records_waiting": "Count",
    "oldest_waited": "Milliseconds",
}
PUBLISHED_EACH_S = 60


class TrafficMeter:
    """Publishes the traffic of an instance when a minute has passed since the last time, and with its first request."""

    def __init__(self) -> None:
        self._published_ms: tuple[float, float] | None = None
        self._own: frozenset[str] = frozenset()

    def end(self, instance: Instance) -> None:
        """Ends an invocation. Once a minute, where there is traffic: one read, and a line for each series.

        If the choice of topics cannot be read, the one before holds. Raises nothing.
        """
        if not instance.traffic.is_on or not self._is_due(instance):
            return
        traffic = instance.traffic.take()
        if not traffic:
            return
        self._published_ms = _clocks_ms(instance)
        try:
            self._own = measured_topics(instance.stores.cursors)
        except PenstockError:
            instance.telemetry.count("topics_unknown")
        now_ms = instance.clock.now_ms()
        for topic, counts in sorted(by_series(traffic, self._own).items()):
            publish("topic", topic, counts.counts(), now_ms)

    def _is_due(self, instance: Instance) -> bool:
        """One of the clocks may stand still while Lambda freezes the instance."""
        if self._published_ms is None:
            return True
        now_ms = _clocks_ms(instance)
        return any(now - then >= PUBLISHED_EACH_S * _MS for now, then in zip(now_ms, self._published_ms, strict=True))


def _clocks_ms(instance: Instance) -> tuple[float, float]:
    return instance.clock.monotonic_ms(), instance.clock.now_ms()


def publish(dimension: str, name: str, values: Mapping[str, float], now_ms: int) -> None:
    """Prints a line with the values of one topic or consumer, `dimension` being its kind. Nothing for no values."""
    if not values:
        return
    line = {
        "_aws": {
            "Timestamp": now_ms,
            "CloudWatchMetrics": [
                {
                    "Namespace": os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Penstock"),
                    "Dimensions": [["service", dimension]],
                    "Metrics": [{"Name": each, "Unit": UNITS[each]} for each in values],
                }
            ],
        },
        "service": os.environ.get("POWERTOOLS_SERVICE_NAME", "penstock"),
        dimension: name,
        **values,
    }
    print(json.dumps(line, separators=(",", ":")))


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
