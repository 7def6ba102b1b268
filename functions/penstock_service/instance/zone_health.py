"""The puts of this function instance to each zone: after `FAILED_PUTS_MAX` failures in a row, a zone is failing.

A put counts only if it ends, or is given up, while its request still waits for it. Afterwards Lambda may freeze the
instance, and the time of a put that crossed a freeze says nothing (docs/protocol/zones). Failures are forgotten
`FAILURES_KEPT_MS` after the last one, so an instance that was frozen does not go by an old trouble.
"""

import threading
from collections.abc import Iterable

from penstock_core.ids import ZoneName
from penstock_core.limits import FAILED_PUTS_MAX
from penstock_service.instance.moment import Moment
from penstock_service.ports.runtime import Clock

FAILURES_KEPT_MS = 30_000


class ZoneHealth:
    """Failures in a row by zone, so at most `ZONES_MAX` entries. Safe for use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[ZoneName, tuple[int, Moment]] = {}

    def begin_put(self, zone: ZoneName) -> "PutWatch":
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
