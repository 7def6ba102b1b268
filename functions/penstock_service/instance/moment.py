"""A moment by both clocks of a process: the only way in which an instance may tell how old its memory is.

Lambda freezes an instance after its answer, for minutes perhaps. The monotonic clock may count the freeze or not, and
a wall clock may be set back. So an age is what the clock that shows more says.
"""

from dataclasses import dataclass

from penstock_service.ports.runtime import Clock


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of one process, in milliseconds of its wall clock and of its monotonic clock."""

    wall_ms: int
    monotonic_ms: float

    @classmethod
    def now(cls, clock: Clock) -> "Moment":
        """The moment of the call. If you remember the answer of a read, take the moment before the read."""
        return cls(clock.now_ms(), clock.monotonic_ms())

    def age_ms(self, clock: Clock) -> float:
        """The time since then, by the clock that shows more. Give the clock that made the moment."""
        return max(float(clock.now_ms() - self.wall_ms), clock.monotonic_ms() - self.monotonic_ms)
