"""A file that asks processes to end."""

import time
from pathlib import Path

_TICK_S = 0.1


class StopFile:
    """Asks processes to end, and is none of the events of `multiprocessing`: a killed process may hold their locks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self) -> None:
        self._path.touch()

    def is_set(self) -> bool:
        return self._path.exists()

    def wait(self, timeout_s: float) -> bool:
        """Return whether it was set in that time."""
        ends_at = time.monotonic() + timeout_s
        while not self.is_set() and time.monotonic() < ends_at:
            time.sleep(_TICK_S)
        return self.is_set()
