"""The check of delayed records (G12): early-delivery, undelivered, cancelled-delivery and delayed-order.

A record that comes twice is a duplicate, and one whose writer was refused is an aborted-read, as for any other record.
Records of one process, partition and due time are in the log in the order of their ids. That holds of two operations
if the first was acknowledged before their due time, and before the second began.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import Acquired, Cancel, Function, Handling, Poll, Schedule, TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.ledger import Ledger
from tests.history.model.operations import Operation


@dataclass(slots=True)
class _Delayed:
    """One delayed record. `is_kept`: the service has promised to deliver it."""

    schedule: Schedule
    process: str
    index: int  # in its operation
    start_ns: int
    end_ns: int | None = None  # of the first acknowledgement
    is_kept: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How long after their due times the delayed records of a history were seen."""

    records: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0


class Delays:
    """The delayed records of a history, what was cancelled, and when each was first seen."""

    def __init__(self, *, clock_skew_ns: int = 0) -> None:
        self._clock_skew_ns = clock_skew_ns
        self._delayed: dict[tuple[TopicPartition, Value], _Delayed] = {}
        self._cancelled: dict[tuple[str, str], tuple[bool, int]] = {}  # by id: told so, and the line
        self._seen: dict[tuple[TopicPartition, Value], tuple[int, int]] = {}  # the end of the first read, and its line
        self._read_from_ns: dict[TopicPartition, int] = {}  # the begin of the last poll
        self._transactions: list[Operation] = []

    def observe(self, operation: Operation) -> None:
        for index, op in enumerate(operation.ops):
            if type(op) is Poll and operation.is_ok:
                self._read_from_ns[op.where] = max(operation.start_ns, self._read_from_ns.get(op.where, 0))
            if type(op) is Poll or type(op) is Acquired or type(op) is Handling:
                for _, value in op.records:
                    self._see(op.where, value, operation)
            elif type(op) is Schedule and not operation.has_failed:
                self._schedule(op, index, operation)
            elif type(op) is Cancel and not operation.has_failed:
                was_told, line = self._cancelled.get((op.topic, op.id), (False, operation.line))
                self._cancelled[op.topic, op.id] = was_told or operation.is_ok, line
        if operation.function is Function.TXN and not (operation.is_ok or operation.has_failed):
            self._transactions.append(operation)

    def _see(self, where: TopicPartition, value: Value, operation: Operation) -> None:
        seen = operation.end_ns, operation.line
        self._seen[where, value] = min(seen, self._seen.get((where, value), seen))

    def _schedule(self, op: Schedule, index: int, operation: Operation) -> None:
        known = self._delayed.get((op.where, op.value))
        if known is None:
            known = _Delayed(op, operation.process, index, operation.start_ns, line=operation.line)
            self._delayed[op.where, op.value] = known
        known.start_ns = min(known.start_ns, operation.start_ns)
        if operation.is_ok:
            known.is_kept = True
            known.end_ns = min(operation.end_ns, known.end_ns or operation.end_ns)

    def anomalies(
        self, order: VersionOrder, ledger: Ledger, truncations: Truncations, *, was_read_to_end: bool
    ) -> Iterator[Anomaly]:
        """Call `ledger.settle` first."""
        self._settle(ledger)
        for place, delayed in self._delayed.items():
            seen = self._seen.get(place)
            was_told, cancel_line = self._cancelled.get((place[0][0], delayed.schedule.id), (None, 0))
            if seen is not None:
                early_ns = delayed.schedule.due_ns - seen[0]
                if early_ns > self._clock_skew_ns:
                    text = f"was read {early_ns / 1e6:.3f} ms before it was due"
                    yield self._found(Kind.EARLY_DELIVERY, delayed, order, text, seen[1])
                if was_told:
                    text = "was cancelled, and came"
                    yield self._found(Kind.CANCELLED_DELIVERY, delayed, order, text, cancel_line, seen[1])
            elif delayed.is_kept and was_told is None and was_read_to_end:
                yield from self._missing(delayed, order, truncations)
        yield from self._out_of_order(order)

    def _settle(self, ledger: Ledger) -> None:
        """A transaction without an answer was committed if one of its records is there: it keeps all of them."""
        for transaction in self._transactions:
            schedules = [op for op in transaction.ops if type(op) is Schedule]
            is_proved = any(ledger.is_proved(send) for send in transaction.sends)
            is_proved |= any((op.where, op.value) in self._seen for op in schedules)
            for op in schedules:
                self._delayed[op.where, op.value].is_kept |= is_proved

    def _missing(self, delayed: _Delayed, order: VersionOrder, truncations: Truncations) -> Iterator[Anomaly]:
        where, due_ns = delayed.schedule.where, delayed.schedule.due_ns
        if due_ns < self._read_from_ns.get(where, 0) and not truncations.start_offset(where):
            yield self._found(Kind.UNDELIVERED, delayed, order, "was due, and never came")

    def _out_of_order(self, order: VersionOrder) -> Iterator[Anomaly]:
        together: dict[tuple[str, TopicPartition, int], list[_Delayed]] = {}
        for delayed in self._delayed.values():
            schedule = delayed.schedule
            together.setdefault((delayed.process, schedule.where, schedule.due_ns), []).append(delayed)
        for each in together.values():
            each.sort(key=lambda delayed: (delayed.schedule.id, delayed.index))
            last: tuple[int, _Delayed] | None = None
            for delayed in each:
                offset = order[delayed.schedule.where].only_offset_of(delayed.schedule.value)
                if offset is None:
                    continue
                if last is not None and offset < last[0] and self._came_before(last[1], delayed):
                    text = f"stands before {last[1].schedule.value!r}, which was sent before for the same time"
                    yield self._found(Kind.DELAYED_ORDER, delayed, order, text, last[1].line)
                if last is None or offset > last[0]:
                    last = offset, delayed

    def _came_before(self, first: _Delayed, second: _Delayed) -> bool:
        """One operation sent both, or the first one waited already when the second one was sent."""
        if first.line == second.line:
            return True
        if first.end_ns is None:
            return False
        return first.end_ns < min(second.start_ns, first.schedule.due_ns - self._clock_skew_ns)

    def _found(self, kind: Kind, delayed: _Delayed, order: VersionOrder, text: str, *lines: int) -> Anomaly:
        where, value = delayed.schedule.where, delayed.schedule.value
        offset = order[where].offset_of.get(value)
        at = "" if offset is None else f" at offset {offset}"
        return Anomaly(
            kind=kind,
            where=where,
            text=f"the delayed record {value!r}{at} of {delayed.process} {text}",
            offsets=() if offset is None else (offset,),
            values=(value,),
            lines=(delayed.line, *lines),
        )

    def lateness(self) -> Lateness:
        """Return how late the records were that came, by the end of the first read that returned them."""
        late = sorted(
            max(0, self._seen[place][0] - delayed.schedule.due_ns) / 1e6
            for place, delayed in self._delayed.items()
            if place in self._seen
        )
        if not late:
            return Lateness()
        p50, p99 = (late[min(len(late) - 1, int(len(late) * share))] for share in (0.5, 0.99))
        return Lateness(records=len(late), p50_ms=p50, p99_ms=p99, worst_ms=late[-1])
