"""The time in which an update may name a segment (docs/adr/0005).

The sweep takes a segment for garbage when it is old and no ref names it. A zone that comes back waits until no writer
goes by older zone states (docs/adr/0004). Both rest on the time that a writer takes from its put to its update. Lambda
bounds that time for functions. Code that runs elsewhere, such as a replay on a laptop, may sleep for a day in between.

A moment by both clocks of a process: the only way in which an instance may tell how old its memory is.

Lambda freezes an instance after its answer, for minutes perhaps. The monotonic clock may count the freeze or not, and
a wall clock may be set back. So an age is what the clock that shows more says.
"""

from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import APPEND_MS_MAX
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWindow:
    """Opened before the first read that a write rests on, and before a segment gets its id, by both clocks."""

    clock: Clock
    opened: Moment

    @classmethod
    def open(cls, clock: Clock) -> "UpdateWindow":
        """A window that opens now. Call it before anything that the update relies on is read or put."""
        return cls(clock=clock, opened=Moment.now(clock))

    def with_read(self, read: Moment) -> "UpdateWindow":
        """The window of an update that also rests on what was read at that moment: it opened then, if that is older."""
        return replace(self, opened=read) if read.age_ms(self.clock) > self.age_ms else self

    @property
    def age_ms(self) -> float:
        """The time since the window was opened, by the clock that shows more.

        A process that sleeps may stop its monotonic clock, and its other clock may be set back.
        """
        return self.opened.age_ms(self.clock)

    def check(self) -> None:
        """Raises STORAGE_UNAVAILABLE once the window is older than `APPEND_MS_MAX` by either clock.

        Call it right before each update: the update is not sent then, so the caller may put its data anew.
        """
        age_ms = self.age_ms
        if age_ms > APPEND_MS_MAX:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"{age_ms / 1_000:.0f} s have passed since the request began, and its write may come "
                f"{APPEND_MS_MAX // 1_000} s after that at most: nothing was written, try again",
            )
