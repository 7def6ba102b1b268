"""A time as a consumer reads it: on the monotonic clock and on the wall clock.

A frozen machine may stop one of them, and an operator may set the other. A lock has ended for its consumer as soon as
either clock says so.
"""

from collections.abc import Callable
from typing import NamedTuple, Self


class Moment(NamedTuple):
    """Both clocks at one time, in milliseconds."""

    monotonic_ms: int
    wall_ms: int

    def later(self, by_ms: int) -> Self:
        """The moment `by_ms` after this one."""
        return self._replace(monotonic_ms=self.monotonic_ms + by_ms, wall_ms=self.wall_ms + by_ms)

    def has_come(self, now: "Moment") -> bool:
        """One of the clocks has reached this moment."""
        return now.monotonic_ms >= self.monotonic_ms or now.wall_ms >= self.wall_ms


Clocks = Callable[[], Moment]
