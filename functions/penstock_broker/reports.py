"""Which bad copies were reported lately, so that one that is read often does not fill the repair queue."""

import threading

from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import REPORT_INTERVAL_MS, REPORTS_REMEMBERED_MAX


class Reports:
    """What one function instance has reported. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: dict[tuple[SegmentId, ZoneName], float] = {}

    def take(self, segment_id: SegmentId, zone: ZoneName, now_ms: float) -> bool:
        """Whether to report the copy now; if so, not again for `REPORT_INTERVAL_MS`. Says no while there are
        `REPORTS_REMEMBERED_MAX` others: a zone that lost that much is a matter for the scrub."""
        with self._lock:
            if now_ms - self._reported.get((segment_id, zone), float("-inf")) < REPORT_INTERVAL_MS:
                return False
            if len(self._reported) >= REPORTS_REMEMBERED_MAX:
                recent = {copy: at_ms for copy, at_ms in self._reported.items() if now_ms - at_ms < REPORT_INTERVAL_MS}
                self._reported = recent
            if len(self._reported) >= REPORTS_REMEMBERED_MAX:
                return False
            self._reported[segment_id, zone] = now_ms
            return True
