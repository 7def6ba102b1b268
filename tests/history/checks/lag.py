"""Real-time lag: the age of a record when a poll began that still did not return it.

Lag is a figure, and no anomaly: a reader that catches up lags too. The lag of polls that returned nothing is staleness.
"""

from bisect import bisect_left
from dataclasses import dataclass

from tests.history.checks.poll_order import PollOrder
from tests.history.checks.truncation import Truncations
from tests.history.format import Poll, Send, TopicPartition
from tests.history.model.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A poll that did not return the record at `offset`, although it was there `lag_ns` before the poll began."""

    where: TopicPartition
    lag_ns: int
    offset: int
    process: str
    line: int


class RealTimeLag:
    """The worst lag of each partition: of all polls (`worst`), and of those that returned nothing (`worst_empty`)."""

    def __init__(self) -> None:
        self.worst: dict[TopicPartition, Lag] = {}
        self.worst_empty: dict[TopicPartition, Lag] = {}
        # Per partition, each time its highest known offset rose: those offsets, and those times.
        self._known: dict[TopicPartition, tuple[list[int], list[int]]] = {}

    def observe(self, operation: Operation, polls: PollOrder, truncations: Truncations) -> None:
        """Take an operation in. Pass it to `polls` and `truncations` first."""
        if not operation.is_ok:
            return
        is_empty: dict[TopicPartition, bool] = {}
        for op in operation.ops:
            if type(op) is Send and op.offset is not None:
                self._know(op.where, op.offset, operation.end_ns)
            elif type(op) is Poll:
                if op.ending is None:  # a filter passes over records that nobody tells
                    is_empty[op.where] = not op.records and is_empty.get(op.where, True)
                if op.records:
                    self._know(op.where, op.records[-1][0], operation.end_ns)
        for where, returned_nothing in is_empty.items():
            position = polls.position(operation.process, where, operation.invoke_line)
            if position is not None:
                self._measure(operation, where, max(position, truncations.start_offset(where)), returned_nothing)

    def _know(self, where: TopicPartition, offset: int, time_ns: int) -> None:
        offsets, times = self._known.setdefault(where, ([], []))
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
            times.append(time_ns)

    def _measure(self, operation: Operation, where: TopicPartition, offset: int, returned_nothing: bool) -> None:
        offsets, times = self._known.get(where, ([], []))
        index = bisect_left(offsets, offset)
        if index == len(offsets) or times[index] >= operation.start_ns:
            return
        lag = Lag(
            where=where,
            lag_ns=operation.start_ns - times[index],
            offset=offset,
            process=operation.process,
            line=operation.line,
        )
        for worst in (self.worst, self.worst_empty) if returned_nothing else (self.worst,):
            if where not in worst or lag.lag_ns > worst[where].lag_ns:
                worst[where] = lag
