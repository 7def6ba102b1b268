"""Zone states, repairs and cursors of jobs in memory."""

import threading

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.repair import Look, Repair
from penstock_core.zones.catch_up import CatchUpPass
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, ZoneStates


class MemoryZoneStateStore:
    """ZoneStateStore: the port documents its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states = EVERY_ZONE_IN_SYNC
        self._pass: CatchUpPass | None = None

    def get(self) -> ZoneStates:
        return self._states

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        with self._lock:
            if self._states.version != old.version:
                raise PenstockError(ErrorCode.CONCURRENT_UPDATE, "another request changed a zone's state: try again")
            self._states = new

    def get_pass(self) -> CatchUpPass | None:
        return self._pass

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        with self._lock:
            if (self._pass and self._pass.saves) != (old and old.saves):
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE,
                    "another run of recover_zones has saved its pass: leave the pass to that run",
                )
            self._pass = new


class MemoryRepairQueue:
    """RepairQueue: the port documents its method. `repairs` and `looks` were sent, and nobody has taken them yet.

    The taker of a look waits for its time, or does not.
    """

    def __init__(self) -> None:
        self.repairs: list[Repair] = []
        self.looks: list[Look] = []

    def send(self, message: Repair | Look) -> None:
        if isinstance(message, Look):
            self.looks.append(message)
        else:
            self.repairs.append(message)


class MemoryJobCursors:
    """JobCursors: the port documents its methods."""

    def __init__(self) -> None:
        self._cursors: dict[str, str] = {}

    def get(self, job: str) -> str | None:
        return self._cursors.get(job)

    def put(self, job: str, cursor: str) -> None:
        self._cursors[job] = cursor

    def clear(self, job: str) -> None:
        self._cursors.pop(job, None)
