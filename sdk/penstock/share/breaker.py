"""A breaker between a consumer and its handler: a broken handler does not carry a whole queue to the dead letters.

    closed --10 records in a row have failed--> open --the pause is over--> one record --succeeds--> closed
                                                 ^-------------fails: twice the pause----'

A record counts once, so one bad record that comes again and again opens nothing. A rejection is a decision of the
handler, and counts as a success. While the breaker is open, the records at hand go back uncounted.
"""

from penstock.model.share import ShareRecord
from penstock.retry import NEVER_MS
from penstock_core.limits import SDK_SHARE_FAILURES_MAX, SDK_SHARE_PAUSE_MS, SDK_SHARE_PAUSE_MS_MAX


class Breaker:
    """The failures of one `run`. `is_open`: all handlers have failed lately."""

    def __init__(self) -> None:
        self._failed: set[tuple[str, int, int]] = set()
        self._pause_ms = 0
        self._due_ms = 0
        self._has_trial = False

    @property
    def is_open(self) -> bool:
        """All handlers have failed lately."""
        return self._pause_ms > 0

    @property
    def due_ms(self) -> int:
        """From when a handler may take a record, by the monotonic clock: NEVER_MS while another one tries."""
        return NEVER_MS if self._has_trial else self._due_ms

    def tries(self) -> None:
        """A handler asks for a record."""
        self._has_trial = self.is_open

    def gives_up(self) -> None:
        """The handler that asked gets no record."""
        self._has_trial = False

    def succeeded(self) -> None:
        """A handler has dealt with a record."""
        self._failed.clear()
        self._pause_ms = self._due_ms = 0
        self._has_trial = False

    def failed(self, record: ShareRecord, now_ms: int) -> int:
        """A handler has failed. Returns the pause that begins now, in ms, or 0."""
        if self.is_open and not self._has_trial:
            return 0  # it began before the pause
        self._has_trial = False
        self._failed.add((record.topic, record.partition, record.offset))
        if len(self._failed) < SDK_SHARE_FAILURES_MAX:
            return 0
        self._pause_ms = min(2 * self._pause_ms or SDK_SHARE_PAUSE_MS, SDK_SHARE_PAUSE_MS_MAX)
        self._due_ms = now_ms + self._pause_ms
        return self._pause_ms
