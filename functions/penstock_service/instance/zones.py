"""The states of the zones, remembered between requests, so that a warm append or fetch reads none.

A writer never uses states older than `REMEMBERED_MS_MAX`. The catch-up of a zone relies on that (docs/adr/0004).

The read times of each zone from here: exponentially weighted means of the times and of their deviation.

A function instance finds its own zone this way, without any setting. A failure counts as a slow answer in the order of
the zones. It does not count in the time that an answer usually takes. The times of a zone are forgotten `TIMES_KEPT_MS`
after its last answer, because after a freeze they may be those of another day.

The puts of this function instance to each zone: after `FAILED_PUTS_MAX` failures in a row, a zone is failing.

A put counts only if it ends, or is given up, while its request still waits for it. Afterwards Lambda may freeze the
instance, and the time of a put that crossed a freeze says nothing (docs/protocol/zones). Failures are forgotten
`FAILURES_KEPT_MS` after the last one, so an instance that was frozen does not go by an old trouble.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_core.errors import PenstockError
from penstock_core.ids import ZoneName
from penstock_core.limits import FAILED_PUTS_MAX
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, REMEMBERED_MS_MAX, ZoneStates
from penstock_service.instance.update_window import Moment
from penstock_service.ports.runtime import Clock

if TYPE_CHECKING:
    from penstock_service.ports.topics import ZoneStateStore


_WEIGHT = 0.2
FAILURE_MS = 1_000.0
HEDGE_FLOOR_MS = 50.0
TIMES_KEPT_MS = 5 * 60_000
_DEVIATIONS = 4  # as TCP's retransmission timer (RFC 6298): few answers take longer
_UNKNOWN_MS = 250.0  # for a zone that has not answered yet: its first answer takes a connection
_SLOW_BYTES_PER_MS = 10_000  # a range gets the time that it takes at 10 MB/s on top
FAILURES_KEPT_MS = 30_000


class ZoneCache:
    """A cache over a ZoneStateStore, of one item. Each function instance has one.

    Without `has_states` it reads nothing: a single zone is always in sync, because no copy elsewhere is ahead of it.
    """

    def __init__(self, store: ZoneStateStore, clock: Clock, *, has_states: bool = True) -> None:
        self._store = store
        self._clock = clock
        self._has_states = has_states
        self._remembered: tuple[Moment, ZoneStates] | None = None

    def get(self) -> ZoneStates:
        """The states as they are or were at most `REMEMBERED_MS_MAX` ago. One read if the remembered ones are older."""
        remembered = self._remembered
        if remembered is not None and remembered[0].age_ms(self._clock) < REMEMBERED_MS_MAX:
            return remembered[1]
        return self.read_through()

    def read_through(self) -> ZoneStates:
        """The states as they are now; the cache remembers them. One read, none with a single zone."""
        if not self._has_states:
            return EVERY_ZONE_IN_SYNC
        # The time before the read: the states that it shows may be as old as that.
        asked = Moment.now(self._clock)
        states = self._store.get()
        self._remembered = (asked, states)
        return states

    def get_for_reading(self) -> ZoneStates:
        """The states of `get`, or the remembered ones of any age if the read fails. A reader takes them as advice."""
        try:
            return self.get()
        except PenstockError:
            return self.remembered

    @property
    def remembered(self) -> ZoneStates:
        """The remembered states of any age, or every zone in sync if there are none. No read."""
        return EVERY_ZONE_IN_SYNC if self._remembered is None else self._remembered[1]


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


class ZoneHealth:
    """Failures in a row by zone, so at most `ZONES_MAX` entries. Safe for use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[ZoneName, tuple[int, Moment]] = {}

    def begin_put(self, zone: ZoneName) -> PutWatch:
        """Watches one put to the zone, which begins now."""
        return PutWatch(self, zone)

    def is_failing(self, zone: ZoneName) -> bool:
        """True if the last `FAILED_PUTS_MAX` puts to the zone have failed, and the last one lately."""
        return self._recent(zone) >= FAILED_PUTS_MAX

    def forgive(self, zone: ZoneName) -> None:
        """Counts anew from 0, after the caller has acted upon the failures."""
        self._failures.pop(zone, None)

    def ended(self, zone: ZoneName, *, is_failed: bool) -> None:
        """Counts the end of a put. A success sets the count to 0."""
        with self._lock:
            if is_failed:
                self._failures[zone] = (self._recent(zone) + 1, Moment.now(self._clock))
            else:
                self._failures.pop(zone, None)

    def _recent(self, zone: ZoneName) -> int:
        count, last = self._failures.get(zone, (0, None))
        return 0 if last is None or last.age_ms(self._clock) >= FAILURES_KEPT_MS else count


class PutWatch:
    """One put, which counts once: as it ended, or as its request gave it up. A closed watch counts nothing."""

    def __init__(self, health: ZoneHealth, zone: ZoneName) -> None:
        self._health = health
        self._zone = zone
        self._open = threading.Lock()

    def end(self, *, is_failed: bool) -> None:
        """Counts the put. A second call changes nothing, and neither does one after `close`."""
        if self._open.acquire(blocking=False):  # never released, so that only the first call gets it
            self._health.ended(self._zone, is_failed=is_failed)

    def close(self) -> None:
        """Ends the watch: if the put has not ended, it never counts."""
        self._open.acquire(blocking=False)


def close_all(watches: Iterable[PutWatch]) -> None:
    """Closes the watches of a request's puts, once their race is over."""
    for watch in watches:
        watch.close()
