"""Which zone answers fastest from here: an exponentially weighted mean of each zone's read times.

A function instance learns its own zone this way without being told where it runs. A failure counts as a slow answer.
"""

from collections.abc import Iterable

from penstock_core.ids import ZoneName

_WEIGHT = 0.2
FAILURE_MS = 1_000.0


class ZoneLatency:
    """Zones that were never asked come first, so that each is tried."""

    def __init__(self) -> None:
        self._mean_ms: dict[ZoneName, float] = {}

    def observe(self, zone: ZoneName, duration_ms: float) -> None:
        mean = self._mean_ms.get(zone, duration_ms)
        self._mean_ms[zone] = mean + _WEIGHT * (duration_ms - mean)

    def fastest_first(self, zones: Iterable[ZoneName]) -> list[ZoneName]:
        return sorted(zones, key=lambda zone: self._mean_ms.get(zone, 0.0))
