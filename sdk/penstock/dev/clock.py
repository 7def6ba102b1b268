"""A clock that can be stopped: calls that wait then end at once."""

import threading

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.system import SystemClock


class StoppableClock(SystemClock):
    """The system's clock. After `stop`, a sleep ends with an error that clients try again: the server goes away."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def sleep_ms(self, duration_ms: float) -> None:
        """Raises STORAGE_UNAVAILABLE if the clock is stopped before the sleep is over."""
        if self._stopped.wait(duration_ms / 1_000):
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE, "the server is stopping: try again once it runs", maybe_applied=True
            )

    def stop(self) -> None:
        """End all sleeps, now and later."""
        self._stopped.set()
