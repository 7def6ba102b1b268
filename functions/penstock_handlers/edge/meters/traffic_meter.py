"""The metrics of topics that an instance has counted, once a minute.

An instance that serves no more requests keeps the counts of its last minute. So a sum may miss them, and no alarm
depends on one.

Metrics of single topics and consumers, as lines in CloudWatch's embedded metric format (EMF).

Each line has one set of dimensions, so each topic and consumer has a line of its own. `Meter` has the metrics of the
stage as a whole.
"""

import json
import os
from collections.abc import Mapping

from penstock_core.errors import PenstockError
from penstock_core.metrics.lag_memory import by_series
from penstock_handlers.edge.meters.metering import PUBLISHED_EACH_S
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
