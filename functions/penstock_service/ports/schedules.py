"""The port of schedules. `penstock_service.ports` says what all methods raise."""

from collections.abc import Sequence
from typing import Protocol

from penstock_core.ids import ScheduleName
from penstock_core.schedules.schedule import Schedule, ScheduleRun


class ScheduleStore(Protocol):
    """The schedules of a stage. `TransactionStore.move` appends the record of a run, and notes the run."""

    def get(self, name: ScheduleName) -> Schedule | None:
        """The schedule, None if there is none of that name. One read."""

    def list(self, after: str, limit: int) -> Sequence[Schedule]:
        """The schedules behind the name `after`, by name, `limit` at most. One query."""

    def due(self, end_ms: int) -> Sequence[Schedule]:
        """The schedules whose next run is due before `end_ms`, by name.

        One query for each MB of all schedules.
        """

    def change(self, old: Schedule | None, new: Schedule) -> None:
        """Stores a new schedule, or changes what its caller writes. Raises CONCURRENT_UPDATE if it is not as `old`.

        Runs meanwhile are no such change. One conditional write, never repeated once it may have been applied.
        """

    def delete(self, seen: Schedule) -> bool:
        """Removes the schedule. False if it is gone, or was made anew. One conditional delete."""

    def note(self, run: ScheduleRun) -> bool:
        """Notes a run that appends nothing. False if another run or a change came before. One conditional update."""
