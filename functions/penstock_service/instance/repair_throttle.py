"""The bad copies that were reported lately: a bad copy that is read often must not fill the repair queue."""

import threading

from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import REPORT_INTERVAL_MS, REPORTS_REMEMBERED_MAX


class RepairThrottle:
    """The reports of one function instance. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: dict[tuple[SegmentId, ZoneName], float] = {}

    def take(self, segment_id: SegmentId, zone: ZoneName, now_ms: float) -> bool:
        """True if the caller is to report the copy now. Then it is False for `REPORT_INTERVAL_MS`.

        False, too, while `REPORTS_REMEMBERED_MAX` other copies were reported lately: a zone that lost that many is a
        matter for the scrub.
        """
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
