"""What one gateway has seen of a led group over time: which sessions have ended, and whether a phase takes too long.

No clock is compared with another one. A session has ended if two views of the document, a session apart by this
gateway's own monotonic clock, show the same count of beats, and this gateway has heard nothing of the member between
them. A phase is overdue in the same way. A write that succeeds is a view, too: it is one on condition of the version.

Reads of a gateway that was frozen, or cut off from the service, lie far apart or take long. It could not have heard of
its members meanwhile, so it begins anew: nothing of what it saw before counts.
"""

from penstock_kafka.groups.led.led_group import LedGroup, Phase

_GAP_PART = 2  # reads that lie more than this part of a session apart begin anew


class Vigil:
    """The watch over one group by one gateway."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[int, float]] = {}  # the count, and since when it or a request was seen
        self._round: tuple[int, float] = (-1, 0.0)
        self._looked_ms: float | None = None

    def wake(self, asked_ms: float, session_ms: float) -> None:
        """A look begins. After a long gap nothing counts that was seen before."""
        if self._looked_ms is not None and asked_ms - self._looked_ms > session_ms / _GAP_PART:
            self._looked_ms = None
            self._beats.clear()
            self._round = (-1, 0.0)

    def look(self, group: LedGroup, asked_ms: float, now_ms: float) -> None:
        """A read or a write began at `asked_ms`, and has just shown this."""
        self.wake(asked_ms, group.session_ms)
        is_new = self._looked_ms is None or now_ms - asked_ms > group.session_ms / _GAP_PART
        self._looked_ms = now_ms
        for name, member in group.members.items():
            seen = self._beats.get(name)
            if is_new or seen is None or seen[0] != member.beats:
                self._beats[name] = (member.beats, now_ms)
        for name in [*self._beats]:
            if name not in group.members:
                del self._beats[name]
        if is_new or self._round[0] != group.round:
            self._round = (group.round, now_ms)

    def heard(self, member_id: str, now_ms: float) -> None:
        """A request of the member has come, or still waits here."""
        if member_id in self._beats:
            self._beats[member_id] = (self._beats[member_id][0], now_ms)

    def ended(self, group: LedGroup, asked_ms: float) -> set[str]:
        """The members whose sessions had ended when the read or write that shows this group began."""
        return {
            name
            for name, member in group.members.items()
            if name in self._beats
            and self._beats[name][0] == member.beats
            and asked_ms - self._beats[name][1] >= member.session_ms
        }

    def is_overdue(self, group: LedGroup, asked_ms: float) -> bool:
        """True if members are waited for, and were so for the whole rebalance time-out when the read began."""
        is_waiting = group.phase in (Phase.JOINING, Phase.SYNCING)
        return is_waiting and self._round[0] == group.round and asked_ms - self._round[1] >= group.rebalance_ms
