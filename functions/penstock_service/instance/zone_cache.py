"""The states of the zones, remembered between requests, so that a warm append or fetch reads none.

A writer never uses states older than `REMEMBERED_MS_MAX`. The catch-up of a zone relies on that (docs/adr/0004).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_core.errors import PenstockError
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, REMEMBERED_MS_MAX, ZoneStates
from penstock_service.instance.moment import Moment
from penstock_service.ports.runtime import Clock

if TYPE_CHECKING:
    from penstock_service.ports.zones import ZoneStateStore


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
