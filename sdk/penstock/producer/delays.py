"""Delayed records: their due times, and the ids of the timers that they wait in.

Both are fixed before the first try of a request, so that a retry finds the timer that an earlier try has put. Ids rise
in a process: records of one partition and due time come in the order in which they were sent.

Expiries count from the due time, or from now for a record that is not delayed. The header is made before the first try,
too, so a retry sends the same bytes.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

from penstock.arguments import check, is_whole
from penstock.errors import as_sdk_error
from penstock.system import random_bytes, wall_clock_ms
from penstock_core.errors import PenstockError
from penstock_core.limits import SDK_DELAY_STEP_MS, TIMER_DELAY_MS_MAX, TIMER_MS_MAX
from penstock_core.log.timer import new_timer_id
from penstock_core.records.expiry import Headers, with_expiry

_ID_BYTES = 6


class Timer(NamedTuple):
    """A due time in milliseconds since 1970, and an id for the timer that records of that time may begin."""

    deliver_at_ms: int
    timer_id: str
    is_cancellable: bool = False

    def scheduled_id(self, partition: int) -> str | None:
        """The name by which you cancel the record, None unless it has a timer of its own."""
        return f"{partition}-{self.deliver_at_ms}-{self.timer_id}" if self.is_cancellable else None

    def fields(self) -> dict[str, object]:
        """The fields of a request for batches that wait in this timer."""
        return {"deliver_at_ms": self.deliver_at_ms, "timer_id": self.timer_id}


class Timers:
    """The timers of one producer. Safe for several threads."""

    def __init__(
        self, now_ms: Callable[[], int] = wall_clock_ms, entropy: Callable[[int], bytes] = random_bytes
    ) -> None:
        self._now_ms = now_ms
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last_ms = 0
        self._count = 0

    def timer(self, deliver_at_ms: int | None, delay_ms: int | None, *, cancellable: bool) -> Timer | None:
        """The timer of a record, None for one that is not delayed.

        A delay is rounded up to `SDK_DELAY_STEP_MS`, so that records share timers, but not above the longest one.
        Raises InvalidError.
        """
        if deliver_at_ms is None and delay_ms is None:
            check(not cancellable, "cancellable=True without delay: give delay_ms or deliver_at_ms, too")
            return None
        check(deliver_at_ms is None or delay_ms is None, "delay_ms and deliver_at_ms: give one of them")
        now_ms = self._now_ms()
        if deliver_at_ms is None:
            _check_between("delay_ms", delay_ms, TIMER_DELAY_MS_MAX)
            deliver_at_ms = now_ms + (delay_ms or 0)
            deliver_at_ms += -deliver_at_ms % SDK_DELAY_STEP_MS
            deliver_at_ms = min(deliver_at_ms, now_ms + TIMER_DELAY_MS_MAX)
        _check_between("deliver_at_ms", deliver_at_ms, TIMER_MS_MAX)
        with self._lock:
            self._last_ms = max(self._last_ms, now_ms)
            self._count += 1
            timer_id = new_timer_id(self._last_ms, self._count, self._entropy(_ID_BYTES))
        return Timer(deliver_at_ms, timer_id.hex(), cancellable)

    def expiring(self, headers: Headers, expires_in_ms: int, timer: Timer | None) -> Headers:
        """The headers of a record that expires so long after its due time, or after now. Raises InvalidError."""
        from_ms = self._now_ms() if timer is None else timer.deliver_at_ms
        try:
            return tuple(with_expiry(headers, expires_in_ms, from_ms))
        except PenstockError as error:
            raise as_sdk_error(error) from None


def _check_between(name: str, value: object, most: int) -> None:
    is_right = is_whole(value) and 0 <= value <= most  # type: ignore[operator]  # it is a number
    check(is_right, f"{name}={value!r:.100}: use a whole number of milliseconds from 0 to {most:,}")
