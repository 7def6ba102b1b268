"""Counts and log entries for operators. The use cases collect them here, and neither log nor publish metrics.

`penstock_handlers.edge.lambda_function` takes them after each request, and writes the log lines and the metrics.
"""

import threading
from collections import Counter
from typing import Any

from penstock_core.limits import INSTANCE_LOG_ENTRIES_MAX

LogEntry = tuple[str, dict[str, Any]]


class Telemetry:
    """Counts and log entries since the last `take`. Safe for use by several threads.

    A thread may still work after its request's answer. The next request takes its counts and entries.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._entries: list[LogEntry] = []

    def count(self, name: str, count: int = 1) -> None:
        """Adds to the metric `name`."""
        with self._lock:
            self._counts[name] += count

    def log(self, name: str, **facts: Any) -> None:
        """Adds 1 to the metric `name`, and a log entry unless there are `INSTANCE_LOG_ENTRIES_MAX` already."""
        with self._lock:
            self._counts[name] += 1
            if len(self._entries) < INSTANCE_LOG_ENTRIES_MAX:
                self._entries.append((name, facts))

    def take(self) -> tuple[Counter[str], list[LogEntry]]:
        """The counts and the entries since the last `take`."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            entries, self._entries = self._entries, []
        return counts, entries
