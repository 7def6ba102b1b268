"""The puts of this function instance to each zone: after `FAILED_PUTS_MAX` failures in a row, a zone is failing."""

import threading

from penstock_core.ids import ZoneName
from penstock_core.limits import FAILED_PUTS_MAX


class ZoneHealth:
    """Failures in a row by zone, so at most `ZONES_MAX` entries. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[ZoneName, int] = {}

    def begin_put(self, zone: ZoneName) -> "PutWatch":
        """Watches one put to the zone, which begins now."""
        return PutWatch(self, zone)

    def is_failing(self, zone: ZoneName) -> bool:
        """True if the last `FAILED_PUTS_MAX` puts to the zone have failed."""
        return self._failures.get(zone, 0) >= FAILED_PUTS_MAX

    def forgive(self, zone: ZoneName) -> None:
        """Counts anew from 0, after the caller has acted upon the failures."""
        self._failures.pop(zone, None)

    def ended(self, zone: ZoneName, *, is_failed: bool) -> None:
        """Counts the end of a put. A success sets the count to 0."""
        with self._lock:
            self._failures[zone] = self._failures.get(zone, 0) + 1 if is_failed else 0


class PutWatch:
    """One put, which counts once: as it ended, or as failed if its request gave it up earlier."""

    def __init__(self, health: ZoneHealth, zone: ZoneName) -> None:
        self._health = health
        self._zone = zone
        self._open = threading.Lock()

    def end(self, *, is_failed: bool) -> None:
        """Counts the put. A second call changes nothing."""
        if self._open.acquire(blocking=False):  # never released, so that only the first call gets it
            self._health.ended(self._zone, is_failed=is_failed)
