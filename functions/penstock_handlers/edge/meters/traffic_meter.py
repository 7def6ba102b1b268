"""The metrics of topics that an instance has counted, once a minute.

An instance that serves no more requests keeps the counts of its last minute. So a sum may miss them, and no alarm
depends on one.
"""

from penstock_core.errors import PenstockError
from penstock_core.metrics.topic_traffic import by_series
from penstock_handlers.edge.meters.metering import PUBLISHED_EACH_S
from penstock_handlers.edge.meters.series import publish
from penstock_service.instance.instance import Instance
from penstock_service.metrics.rank_topics import measured_topics

_MS = 1_000


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
