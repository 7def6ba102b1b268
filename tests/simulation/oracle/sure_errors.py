"""An error that does not say `maybe_applied` tells that its call has changed nothing, and that it never will.

A call changes items from all tasks that work for it: those side by side, those that outlive its answer, and writes that
take effect late. Only the writes that clients ask for count. What a call does besides is no effect of it: it tidies up,
arms, moves records that are due to the dead letters, and stages what it does not commit. An acquire without
acknowledgements is left out: it finishes what its filter does not take.
"""

from dataclasses import dataclass, field

from penstock_core.errors import Category, PenstockError
from tests.simulation.oracle.violation import expect

_EFFECTS = {
    "groups": {"commit", "reset_lease", "delete_lease"},
    "log": {"append", "append_in_sequence", "delete_head", "jump", "raise_log_start"},
    "memberships": {"delete_group"},
    "push": {"change_subscription", "delete_subscription"},
    "share": {"change_group", "create_state", "delete_group", "delete_state", "reset", "update"},
    "timers": {"cancel", "put"},
    "topics": {"create", "delete", "replace", "retire"},
    "transactions": {"begin_epoch", "commit"},
}


@dataclass(slots=True)
class Request:
    """One call of a client: the writes that it has made, and the error that told it of none."""

    writes: list[str] = field(default_factory=list)
    error: PenstockError | None = None

    def wrote(self, label: str, method: str, arguments: tuple[object, ...]) -> None:
        """Note a write of this call that has taken effect."""
        if method in _EFFECTS.get(label, ()):
            told = f"{label}.{method} {arguments[0]}"
            expect(self.error is None, f"a call was told that it has changed nothing, and makes {told}: {self.error}")
            self.writes.append(told)

    def failed(self, error: PenstockError) -> None:
        """Check the error that the call ends with. What is not there any more has taken all changes with it."""
        if not error.maybe_applied and error.code.category is not Category.NOT_FOUND:
            expect(not self.writes, f"a call has made {self.writes}, and is told that it has not: {error}")
            self.error = error
