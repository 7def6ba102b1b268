"""What one function instance remembers of the timers that it has put: room in their minutes, and messages sent.

All of it may be lost: the instance then reserves again, and sends a message again. A memory is safe however old it is.
No timer is put in a minute that has left the index (`timer.is_minute_over`), and a message counts only while it is
still on its way (docs/adr/0039).
"""

import threading

from penstock_core.limits import INSTANCE_TIMER_MINUTES_MAX, INSTANCE_TIMER_SECONDS_MAX, TIMERS_RESERVED
from penstock_core.log.timer import DueMinute, DueSecond


class TimerMemory:
    """The memory of one function instance. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._room: dict[DueMinute, int] = {}
        self._sent: set[DueSecond] = set()
        self.has_switched_on = False

    def take_room(self, minute: DueMinute) -> int:
        """Takes room for one timer. Gives 0, or the room that the caller must reserve first, and then add."""
        with self._lock:
            room = self._room.get(minute)
            if room:
                self._room[minute] = room - 1
                return 0
        return 1 if room is None else TIMERS_RESERVED

    def add_room(self, minute: DueMinute, count: int) -> None:
        """Notes that so much more room was reserved."""
        with self._lock:
            if len(self._room) >= INSTANCE_TIMER_MINUTES_MAX:
                self._room.clear()
            self._room[minute] = self._room.get(minute, 0) + count

    def has_sent(self, second: DueSecond) -> bool:
        """True if this instance has sent the message for that second."""
        with self._lock:
            return second in self._sent

    def note_sent(self, second: DueSecond) -> None:
        """Notes that the message for that second was sent."""
        with self._lock:
            if len(self._sent) >= INSTANCE_TIMER_SECONDS_MAX:
                self._sent.clear()
            self._sent.add(second)
