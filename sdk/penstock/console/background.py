"""A value that takes long to read: a thread reads it anew when somebody looks and the last one is old."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError

Value = TypeVar("Value")

logger = logging.getLogger("penstock.console")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[Value]):
    """The value as it was read last, its age, and what the last try failed with. All are None before the first try."""

    value: Value | None
    age_ms: int | None
    error: str | None
    is_reading: bool


class Background(Generic[Value]):
    """One such value. `interval_ms` says how long a value is good. Several threads may look."""

    def __init__(
        self,
        read: Callable[[], Value],
        interval_ms: Callable[[], int],
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

    def look(self, wait_ms: int) -> Look[Value]:
        """The value of now or of some time ago. Waits so long for the first one."""
        with self._changed:
            now_ms = self._clock_ms()
            is_old = self._tried_at_ms is None or now_ms - self._tried_at_ms >= self._interval_ms()
            if is_old and not self._is_reading:
                self._is_reading = True
                threading.Thread(target=self._run, name="penstock-figures", daemon=True).start()
            self._changed.wait_for(lambda: self._tried_at_ms is not None, wait_ms / 1_000)
            return Look(
                value=self._value,
                age_ms=None if self._read_at_ms is None else max(0, self._clock_ms() - self._read_at_ms),
                error=self._error,
                is_reading=self._is_reading,
            )

    def _run(self) -> None:
        value, error = None, None
        try:
            value = self._read()
        except PenstockError as failure:
            error = str(failure)
        except Exception as failure:  # the edge of the thread: a look must not wait for ever
            logger.exception("a reading has failed in an unexpected way")
            error = f"the console has a defect: {type(failure).__name__}"
        with self._changed:
            self._is_reading = False
            self._tried_at_ms = self._clock_ms()
            self._error = error
            if error is None:
                self._value, self._read_at_ms = value, self._tried_at_ms
            self._changed.notify_all()
