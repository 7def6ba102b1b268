"""The read times of each zone from here: exponentially weighted means of the times and of their deviation.

A function instance finds its own zone this way, without any setting. A failure counts as a slow answer in the order of
the zones. It does not count in the time that an answer usually takes.
"""

from collections.abc import Iterable

from penstock_core.ids import ZoneName

_WEIGHT = 0.2
FAILURE_MS = 1_000.0
HEDGE_FLOOR_MS = 50.0
_DEVIATIONS = 4  # as TCP's retransmission timer (RFC 6298): few answers take longer
_UNKNOWN_MS = 250.0  # for a zone that has not answered yet: its first answer takes a connection
_SLOW_BYTES_PER_MS = 10_000  # a range gets the time that it takes at 10 MB/s on top


class ZoneLatency:
    """Mean read times by zone, so at most `ZONES_MAX` entries."""

    def __init__(self) -> None:
        self._order_ms: dict[ZoneName, float] = {}
        self._mean_ms: dict[ZoneName, float] = {}
        self._deviation_ms: dict[ZoneName, float] = {}

    def observe(self, zone: ZoneName, duration_ms: float) -> None:
        """Notes that the zone has answered in this time."""
        self._learn_order(zone, duration_ms)
        mean = self._mean_ms.get(zone, duration_ms)
        deviation = self._deviation_ms.get(zone, duration_ms / 2)
        self._deviation_ms[zone] = deviation + _WEIGHT * (abs(duration_ms - mean) - deviation)
        self._mean_ms[zone] = mean + _WEIGHT * (duration_ms - mean)

    def observe_failure(self, zone: ZoneName, duration_ms: float = FAILURE_MS) -> None:
        """Notes that the zone has failed, or has not answered in this time."""
        self._learn_order(zone, duration_ms)

    def fastest_first(self, zones: Iterable[ZoneName]) -> list[ZoneName]:
        """The zones by their mean time. Zones that were never asked come first, so that each is tried."""
        return sorted(zones, key=lambda zone: self._order_ms.get(zone, 0.0))

    def hedge_delay_ms(self, zone: ZoneName, length: int, floor_ms: float) -> float:
        """The time after which an answer of `length` bytes counts as slow, so that the next zone is asked, too."""
        usual_ms = _UNKNOWN_MS
        if zone in self._mean_ms:
            usual_ms = self._mean_ms[zone] + _DEVIATIONS * self._deviation_ms[zone]
        return max(floor_ms, usual_ms) + length / _SLOW_BYTES_PER_MS

    def _learn_order(self, zone: ZoneName, duration_ms: float) -> None:
        mean = self._order_ms.get(zone, duration_ms)
        self._order_ms[zone] = mean + _WEIGHT * (duration_ms - mean)
