"""The ports of zone states and repairs. `penstock_service.ports` says what all methods raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock_core.log.repair import Look, Repair
    from penstock_core.zones.catch_up import CatchUpPass
    from penstock_core.zones.zone_state import ZoneStates


class ZoneStateStore(Protocol):
    """The states of all zones, and the progress of the zones that catch up. Reads are consistent."""

    def get(self) -> ZoneStates:
        """The states of all zones. One read."""

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        """Stores `new` in place of `old`.

        Raises CONCURRENT_UPDATE unless the stored version is still the one of `old`. One conditional write.
        """

    def get_pass(self) -> CatchUpPass | None:
        """The pass over the index that is under way, or None. One read."""

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        """Stores `new` in place of `old`, which is None before the first pass.

        Raises CONCURRENT_UPDATE unless the stored pass was saved as often as `old`. One conditional write.
        """


class RepairQueue(Protocol):
    """Messages that the function `replicate` carries out, at least once each and in no order."""

    def send(self, message: Repair | Look) -> None:
        """Sends a repair that is due now, or a look that is due in `REPAIR_DELAY_MS`. One call."""
