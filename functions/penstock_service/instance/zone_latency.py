"""The read times of each zone from here: exponentially weighted means of the times and of their deviation.

A function instance finds its own zone this way, without any setting. A failure counts as a slow answer in the order of
the zones. It does not count in the time that an answer usually takes. The times of a zone are forgotten `TIMES_KEPT_MS`
after its last answer, because after a freeze they may be those of another day.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_core.ids import ZoneName
from penstock_service.instance.moment import Moment
from penstock_service.ports.runtime import Clock

_WEIGHT = 0.2
FAILURE_MS = 1_000.0
HEDGE_FLOOR_MS = 50.0
TIMES_KEPT_MS = 5 * 60_000
_DEVIATIONS = 4  # as TCP's retransmission timer (RFC 6298): few answers take longer
_UNKNOWN_MS = 250.0  # for a zone that has not answered yet: its first answer takes a connection
_SLOW_BYTES_PER_MS = 10_000  # a range gets the time that it takes at 10 MB/s on top


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """What one zone took: in the order of the zones, and as the mean and deviation of its answers, if it gave any."""

    order_ms: float
    mean_ms: float | None
    deviation_ms: float
    at: Moment


class ZoneLatency:
    """Mean read times by zone, so at most `ZONES_MAX` entries."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[ZoneName, _Times] = {}

    def observe(self, zone: ZoneName, duration_ms: float) -> None:
        """Notes that the zone has answered in this time. Call it only while the read's request still waits."""
        known = self._recent(zone)
        mean = duration_ms if known is None or known.mean_ms is None else known.mean_ms
        deviation = duration_ms / 2 if known is None or known.mean_ms is None else known.deviation_ms
        self._learn(
            zone,
            known,
            duration_ms,
            mean_ms=mean + _WEIGHT * (duration_ms - mean),
            deviation_ms=deviation + _WEIGHT * (abs(duration_ms - mean) - deviation),
        )

    def observe_failure(self, zone: ZoneName, duration_ms: float = FAILURE_MS) -> None:
        """Notes that the zone has failed, or has not answered in this time."""
        known = self._recent(zone)
        mean, deviation = (None, 0.0) if known is None else (known.mean_ms, known.deviation_ms)
        self._learn(zone, known, duration_ms, mean_ms=mean, deviation_ms=deviation)

    def fastest_first(self, zones: Iterable[ZoneName]) -> list[ZoneName]:
        """The zones by their mean time. Zones that were not asked lately come first, so that each is tried."""
        known = {zone: self._recent(zone) for zone in zones}
        return sorted(known, key=lambda zone: 0.0 if (times := known[zone]) is None else times.order_ms)

    def hedge_delay_ms(self, zone: ZoneName, length: int, floor_ms: float) -> float:
        """The time after which an answer of `length` bytes counts as slow, so that the next zone is asked, too."""
        known = self._recent(zone)
        usual_ms = _UNKNOWN_MS
        if known is not None and known.mean_ms is not None:
            usual_ms = known.mean_ms + _DEVIATIONS * known.deviation_ms
        return max(floor_ms, usual_ms) + length / _SLOW_BYTES_PER_MS

    def _recent(self, zone: ZoneName) -> _Times | None:
        times = self._times.get(zone)
        return None if times is None or times.at.age_ms(self._clock) >= TIMES_KEPT_MS else times

    def _learn(
        self, zone: ZoneName, known: _Times | None, duration_ms: float, *, mean_ms: float | None, deviation_ms: float
    ) -> None:
        order = duration_ms if known is None else known.order_ms
        self._times[zone] = _Times(
            order_ms=order + _WEIGHT * (duration_ms - order),
            mean_ms=mean_ms,
            deviation_ms=deviation_ms,
            at=Moment.now(self._clock),
        )
