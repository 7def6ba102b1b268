"""The bad copies that were reported lately: a bad copy that is read often must not fill the repair queue."""

import threading

from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import REPORT_INTERVAL_MS, REPORTS_REMEMBERED_MAX
from penstock_service.instance.moment import Moment
from penstock_service.ports.runtime import Clock


class RepairThrottle:
    """The reports of one function instance. Safe for use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reported: dict[tuple[SegmentId, ZoneName], Moment] = {}

    def take(self, segment_id: SegmentId, zone: ZoneName) -> bool:
        """True if the caller is to report the copy now. Then it is False for `REPORT_INTERVAL_MS`.

        False, too, while `REPORTS_REMEMBERED_MAX` other copies were reported lately: a zone that lost that many is a
        matter for the scrub.
        """
        with self._lock:
            if (reported := self._reported.get((segment_id, zone))) is not None and self._is_recent(reported):
                return False
            if len(self._reported) >= REPORTS_REMEMBERED_MAX:
                self._reported = {copy: at for copy, at in self._reported.items() if self._is_recent(at)}
            if len(self._reported) >= REPORTS_REMEMBERED_MAX:
                return False
            self._reported[segment_id, zone] = Moment.now(self._clock)
            return True

    def _is_recent(self, reported: Moment) -> bool:
        return reported.age_ms(self._clock) < REPORT_INTERVAL_MS
