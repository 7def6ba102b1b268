"""How the puts of this function instance to each zone have ended lately: two failures in a row are one too many."""

import threading

from penstock_core.ids import ZoneName

FAILURES_MAX = 2


class ZoneHealth:
    """Counts failures in a row by zone. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[ZoneName, int] = {}

    def begin_put(self, zone: ZoneName) -> "PutWatch":
        return PutWatch(self, zone)

    def is_failing(self, zone: ZoneName) -> bool:
        """Whether the last `FAILURES_MAX` puts to the zone have failed."""
        return self._failures.get(zone, 0) >= FAILURES_MAX

    def forgive(self, zone: ZoneName) -> None:
        """Begins to count anew: what is known of the zone has been acted upon."""
        self._failures.pop(zone, None)

    def ended(self, zone: ZoneName, *, is_failed: bool) -> None:
        with self._lock:
            self._failures[zone] = self._failures.get(zone, 0) + 1 if is_failed else 0


class PutWatch:
    """One put, which counts once: as it ended, or as failed when its request gave it up before."""

    def __init__(self, health: ZoneHealth, zone: ZoneName) -> None:
        self._health = health
        self._zone = zone
        self._open = threading.Lock()

    def end(self, *, is_failed: bool) -> None:
        if self._open.acquire(blocking=False):  # never released: the second to come has nothing to say
            self._health.ended(self._zone, is_failed=is_failed)
