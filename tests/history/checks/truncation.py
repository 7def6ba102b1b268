"""The prefix of a partition that need not be readable, and since when."""

from bisect import bisect_right

from tests.history.format import TopicPartition, Truncate
from tests.history.model.operations import Operation


class Truncations:
    """The truncations that did or may have taken effect.

    A truncation counts from its invoke on, because records may be gone before its caller knows.
    """

    def __init__(self) -> None:
        self._raises: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._start_offset: dict[TopicPartition, int] = {}

    def observe(self, operation: Operation) -> None:
        for op in operation.ops:
            if type(op) is Truncate and not operation.has_failed:
                self._raises.setdefault(op.where, []).append((operation.start_ns, op.before_offset))
                self._start_offset[op.where] = max(op.before_offset, self.start_offset(op.where))

    def start_offset(self, where: TopicPartition) -> int:
        """Return the lowest offset that must be readable after all operations so far."""
        return self._start_offset.get(where, 0)

    def start_offset_at(self, where: TopicPartition, time_ns: int) -> int:
        """Return the lowest offset that had to be readable at `time_ns`."""
        raises = sorted(self._raises.get(where, []))
        began = bisect_right(raises, time_ns, key=lambda entry: entry[0])
        return max((before_offset for _, before_offset in raises[:began]), default=0)
