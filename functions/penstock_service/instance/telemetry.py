"""Counts and log entries for operators. The use cases collect them here, and neither log nor publish metrics.

`penstock_handlers.edge.lambda_function` takes them after each request, and writes the log lines and the metrics.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from penstock_core.limits import INSTANCE_LOG_ENTRIES_MAX

LogEntry = tuple[str, dict[str, Any]]


class _Notes:
    """What one request has noted, or all that belongs to none."""

    def __init__(self, noted_in: "Telemetry") -> None:
        self.noted_in = noted_in
        self.counts: Counter[str] = Counter()
        self.entries: list[LogEntry] = []


_OF_REQUEST: ContextVar[_Notes | None] = ContextVar("penstock_telemetry", default=None)


class Telemetry:
    """Counts and log entries since the last `take`. Safe for use by several threads.

    A thread may still work after its request's answer, perhaps minutes later, because Lambda has frozen it meanwhile.
    Its notes then belong to no request that runs, so the telemetry drops them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes = _Notes(self)

    @contextmanager
    def of_request(self) -> Iterator[None]:
        """Keeps what the block notes by itself, in this thread and those of its executor. Call `take` in the block."""
        token = _OF_REQUEST.set(_Notes(self))
        try:
            yield
        finally:
            _OF_REQUEST.reset(token)

    def count(self, name: str, count: int = 1) -> None:
        """Adds to the metric `name`."""
        with self._lock:
            self._here().counts[name] += count

    def log(self, name: str, **facts: Any) -> None:
        """Adds 1 to the metric `name`, and a log entry unless there are `INSTANCE_LOG_ENTRIES_MAX` already."""
        with self._lock:
            notes = self._here()
            notes.counts[name] += 1
            if len(notes.entries) < INSTANCE_LOG_ENTRIES_MAX:
                notes.entries.append((name, facts))

    def take(self) -> tuple[Counter[str], list[LogEntry]]:
        """The counts and the entries since the last `take`: of the request, or outside of requests of the process."""
        with self._lock:
            notes = self._here()
            counts, notes.counts = notes.counts, Counter()
            entries, notes.entries = notes.entries, []
        return counts, entries

    def _here(self) -> _Notes:
        notes = _OF_REQUEST.get()
        return self._notes if notes is None or notes.noted_in is not self else notes
