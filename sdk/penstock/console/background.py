"""A value that takes long to read: a thread reads it anew when somebody looks and the last one is old."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.console.service_down import ServiceDownError
from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError

Value = TypeVar("Value")
Seen_co = TypeVar("Seen_co", covariant=True)

logger = logging.getLogger("penstock.console")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[Seen_co]):
    """The value as it was read last, its age, and what the last try failed with. All are None before the first try.

    `down` is the last try's error if the service did not answer it.
    """

    value: Seen_co | None
    age_ms: int | None
    error: str | None
    is_reading: bool
    down: ServiceDownError | None = None


class Background(Generic[Value]):
    """One such value. `interval_ms` says how long a value is good, by default not at all. Several threads may look."""

    def __init__(
        self,
        read: Callable[[], Value],
        interval_ms: Callable[[], int] = lambda: 0,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._read = read
        self._interval_ms = interval_ms
        self._clock_ms = clock_ms
        self._changed = threading.Condition()
        self._is_reading = False
        self._tried_at_ms: int | None = None
        self._read_at_ms: int | None = None
        self._value: Value | None = None
        self._error: str | None = None
        self._down: ServiceDownError | None = None

    def begin(self) -> None:
        """Read the value anew if it is old and not being read. Returns at once."""
        with self._changed:
            is_old = self._tried_at_ms is None or self._clock_ms() - self._tried_at_ms >= self._interval_ms()
            if is_old and not self._is_reading:
                self._is_reading = True
                threading.Thread(target=self._run, name="penstock-figures", daemon=True).start()

    def settled(self, wait_ms: int) -> Look[Value]:
        """The value after the reading that is under way. One that takes longer than `wait_ms` leaves the last value."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_reading, wait_ms / 1_000)
            return self._look()

    def look(self, wait_ms: int) -> Look[Value]:
        """The value of now or of some time ago. Waits so long for the first one."""
        self.begin()
        with self._changed:
            self._changed.wait_for(lambda: self._tried_at_ms is not None, wait_ms / 1_000)
            return self._look()

    def _look(self) -> Look[Value]:
        return Look(
            value=self._value,
            age_ms=None if self._read_at_ms is None else max(0, self._clock_ms() - self._read_at_ms),
            error=self._error,
            is_reading=self._is_reading,
            down=self._down,
        )

    def _run(self) -> None:
        value, error, down = None, None, None
        try:
            value = self._read()
        except ServiceDownError as failure:
            error, down = str(failure.error), failure
        except PenstockError as failure:
            error = str(failure)
        except Exception as failure:  # the edge of the thread: a look must not wait for ever
            logger.exception("a reading has failed in an unexpected way")
            error = f"the console has a defect: {type(failure).__name__}"
        with self._changed:
            self._is_reading = False
            self._tried_at_ms = self._clock_ms()
            self._error, self._down = error, down
            if error is None:
                self._value, self._read_at_ms = value, self._tried_at_ms
            self._changed.notify_all()
