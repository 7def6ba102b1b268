"""What happens beside the answers and operators want to know of: counted, and the notable told, by the function's edge.

The broker neither logs nor measures by itself: `handlers.entry` takes what has come together after each request.
"""

import threading
from collections import Counter
from typing import Any

Told = tuple[str, dict[str, Any]]


class Events:
    """Safe for use by several threads. What comes after an answer is taken with the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._told: list[Told] = []

    def count(self, name: str, count: int = 1) -> None:
        """Adds to the metric `name`."""
        with self._lock:
            self._counts[name] += count

    def tell(self, name: str, **facts: Any) -> None:
        """A log line of its own, and one more of the metric `name`."""
        with self._lock:
            self._counts[name] += 1
            self._told.append((name, facts))

    def take(self) -> tuple[Counter[str], list[Told]]:
        """The counts and the lines since the last time."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            told, self._told = self._told, []
        return counts, told
