"""The number of records that a consumer acquires, and the time to acquire ahead.

A worker that takes more than it can handle keeps records from the other workers. A worker that takes one at a time
waits for the service after each. So it measures how long the application has a record, without the time in which the
application waits for one:

- It asks for about `SDK_SHARE_WORK_MS` of work.
- It asks for the next records while it still has work for one call to the service.
"""

from penstock_core.limits import SDK_SHARE_FIRST_RECORDS, SDK_SHARE_WORK_MS

_AHEAD = 1.5  # calls to the service vary: so many of them fit into the work that is at hand
_WEIGHT = 0.5  # of the newest measurement


class Appetite:
    """Counts for one consumer. `workers` handle records at the same time."""

    def __init__(self, max_records: int) -> None:
        self._max_records = max_records
        self._workers = 1
        self._record_ms: float | None = None  # between two records that the application takes
        self._call_ms = 0.0
        self._begun = 0  # records since `_since_ms`
        self._since_ms = 0
        self._hungry_ms: int | None = None  # the application waits since then
        self._idle_ms = 0  # and has waited so long since `_since_ms`

    def employ(self, workers: int) -> None:
        """So many records are handled at once from now on."""
        self._workers = workers
        self._record_ms = None

    def waits(self, now_ms: int) -> None:
        """The application waits for a record."""
        if self._hungry_ms is None:
            self._hungry_ms = now_ms

    def begins(self, records: int, now_ms: int) -> None:
        """The application takes records."""
        if self._hungry_ms is not None:
            self._idle_ms += now_ms - self._hungry_ms
            self._hungry_ms = None
        self._begun += records

    def ask(self, now_ms: int) -> int:
        """The number of records to acquire now."""
        self._measure(now_ms)
        if self._record_ms is None:
            return min(self._max_records, max(SDK_SHARE_FIRST_RECORDS, 2 * self._workers))
        wanted = self._max_records
        if self._record_ms * self._max_records > SDK_SHARE_WORK_MS:
            wanted = int(SDK_SHARE_WORK_MS / self._record_ms)
        return min(self._max_records, max(wanted, self._workers))

    def answered(self, call_ms: int) -> None:
        """An acquire took so long."""
        self._call_ms = call_ms if not self._call_ms else _mean(self._call_ms, call_ms)

    @property
    def low_water(self) -> int:
        """Acquire ahead when fewer records than this are at hand. 0 while the application takes none."""
        if self._record_ms is None or not self._begun:
            return 0
        if self._record_ms * self._max_records <= _AHEAD * self._call_ms:
            return self._max_records
        return int(_AHEAD * self._call_ms / self._record_ms)

    def _measure(self, now_ms: int) -> None:
        hungry_ms = 0 if self._hungry_ms is None else now_ms - self._hungry_ms
        busy_ms = now_ms - self._since_ms - self._idle_ms - hungry_ms
        if self._begun:
            record_ms = max(busy_ms, 0) / self._begun
            self._record_ms = record_ms if self._record_ms is None else _mean(self._record_ms, record_ms)
        self._begun, self._idle_ms, self._since_ms = 0, 0, now_ms
        if self._hungry_ms is not None:
            self._hungry_ms = now_ms


def _mean(old: float, new: float) -> float:
    return (1 - _WEIGHT) * old + _WEIGHT * new
