"""The states of the zones, remembered between requests, so that a warm append or fetch reads none.

A writer never goes by what is older than `REMEMBERED_MS_MAX`: a zone that catches up counts on it (docs/adr/0004).
"""

from penstock_broker.ports import Clock, ZoneStateStore
from penstock_core.errors import PenstockError
from penstock_core.zone_state import EVERY_ZONE_IN_SYNC, REMEMBERED_MS_MAX, ZoneStates


class ZoneDirectory:
    """A cache over a ZoneStateStore. One instance per function instance."""

    def __init__(self, store: ZoneStateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._remembered: tuple[float, int, ZoneStates] | None = None

    def find(self) -> ZoneStates:
        """The states as they are or were at most `REMEMBERED_MS_MAX` ago. A read only if nothing as new is known."""
        remembered = self._remembered
        if remembered is not None and self._age_ms(remembered) < REMEMBERED_MS_MAX:
            return remembered[2]
        return self.look_up()

    def look_up(self) -> ZoneStates:
        """`find`, past what is remembered. One read."""
        # From before the read: what it shows may be as old as that.
        asked = self._clock.monotonic_ms(), self._clock.now_ms()
        states = self._store.get()
        self._remembered = (*asked, states)
        return states

    def find_for_reading(self) -> ZoneStates:
        """`find` for those to whom the states are advice: what is remembered, however old, if they cannot be read."""
        try:
            return self.find()
        except PenstockError:
            return self.remembered

    @property
    def remembered(self) -> ZoneStates:
        """What is remembered, however old; every zone in sync if nothing is. No read."""
        return EVERY_ZONE_IN_SYNC if self._remembered is None else self._remembered[2]

    def _age_ms(self, remembered: tuple[float, int, ZoneStates]) -> float:
        """By both clocks: the monotonic one may stand still while an instance is frozen, the other may be set back."""
        return max(self._clock.monotonic_ms() - remembered[0], self._clock.now_ms() - remembered[1])
