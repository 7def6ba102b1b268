"""The check that each process reads a partition in order: it never goes back, and leaves nothing out.

Finds nonmonotonic-poll and poll-skip (between operations of a process), int-nonmonotonic-poll and int-poll-skip (within
one), offset-gap, and the wrong-filter of a poll. A process that passes over an offset skips a record if one is known
there, and else finds a gap. Three things excuse a jump: the client asked for it (assign, subscribe, seek), or moved
during a poll, or the offsets were truncated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import Assign, Poll, Seek, Subscribe, TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.ledger import Ledger
from tests.history.model.operations import Operation

SHOWN_OFFSETS = 5  # of a skip or a gap


@dataclass(frozen=True, slots=True)
class _Position:
    offset: int  # the offset of the next record
    line: int  # the line that says so


@dataclass(slots=True)
class _Reader:
    """The positions of one process. `moved` has the line of its last move per partition, `moved_all` of all of them."""

    positions: dict[TopicPartition, _Position] = field(default_factory=dict)
    moved: dict[TopicPartition, int] = field(default_factory=dict)
    moved_all: int = 0

    def move(self, where: TopicPartition, offset: int | None, line: int) -> None:
        self.moved[where] = line
        self.positions.pop(where, None)
        if offset is not None:
            self.positions[where] = _Position(offset, line)

    def move_all(self, line: int) -> None:
        self.moved_all = line
        self.positions.clear()

    def assign(self, assign: Assign, line: int) -> None:
        for where in self.positions.keys() - set(assign.kept):
            self.move(where, None, line)
        for where in assign.kept:
            if where not in self.positions:
                self.move(where, None, line)
        for where, offset in assign.started:
            self.move(where, offset, line)

    def has_moved_since(self, where: TopicPartition, line: int) -> bool:
        return self.moved.get(where, 0) > line or self.moved_all > line


@dataclass(frozen=True, slots=True)
class _Jump:
    """A process went from expecting `start_offset` to reading `end_offset`."""

    operation: Operation
    where: TopicPartition
    start_offset: int
    end_offset: int
    kind: Kind
    line_before: int
    ending: str | None = None  # of the values that the reader's filter takes

    def is_for(self, value: Value) -> bool:
        """Return whether the reader wants the record of this value."""
        return self.ending is None or str(value).endswith(self.ending)


class PollOrder:
    """The position of every process in every partition."""

    def __init__(self) -> None:
        self._readers: dict[str, _Reader] = {}
        self._backward: list[Anomaly] = []
        self._jumps: list[_Jump] = []
        self._unwanted: list[Anomaly] = []

    def observe(self, operation: Operation) -> None:
        reader = self._readers.get(operation.process)
        if reader is None:
            reader = self._readers[operation.process] = _Reader()
        is_maybe = not operation.is_ok and not operation.has_failed
        lasts: dict[TopicPartition, int] = {}
        for op in operation.ops:
            if type(op) is Poll:
                if op.records:
                    self._poll(reader, operation, op, lasts)
            elif type(op) is Assign or type(op) is Subscribe or type(op) is Seek:
                if operation.is_ok:
                    _move(reader, op, operation.line)
                elif is_maybe:
                    reader.move_all(operation.line)
        if operation.has_failed:
            return  # these records do not count: the process goes on where it was
        for where, last in lasts.items():
            if operation.is_ok:
                reader.positions[where] = _Position(last + 1, operation.line)
            else:
                reader.positions.pop(where, None)

    def position(self, process: str, where: TopicPartition, line: int) -> int | None:
        """Return the offset that `process` reads next, or None if it is unknown or the process moved since `line`."""
        reader = self._readers.get(process)
        position = reader and reader.positions.get(where)
        return position.offset if reader and position and not reader.has_moved_since(where, line) else None

    def anomalies(self, order: VersionOrder, ledger: Ledger, truncations: Truncations) -> Iterator[Anomaly]:
        """Call `ledger.settle` first: the check judges jumps by all that is known in the end."""
        yield from self._backward
        yield from self._unwanted
        gaps: set[tuple[TopicPartition, int]] = set()
        for jump in self._jumps:
            start_offset = max(jump.start_offset, truncations.start_offset_at(jump.where, jump.operation.end_ns))
            value_at = order[jump.where].value_at
            known = _known(value_at, start_offset, jump.end_offset)
            skipped = [
                offset
                for offset in known
                if jump.is_for(value_at[offset]) and not ledger.may_be_missing(jump.where, value_at[offset])
            ]
            if skipped:
                yield _skip(jump, skipped, tuple(value_at[offset] for offset in skipped[:SHOWN_OFFSETS]))
            missing = max(0, jump.end_offset - start_offset) - len(known)
            if missing and jump.ending is None:  # a filter passes over what nobody knows too
                first = next(offset for offset in range(start_offset, jump.end_offset) if offset not in value_at)
                if (jump.where, first) not in gaps:  # every reader finds the gap, so report it once
                    gaps.add((jump.where, first))
                    yield _gap(jump, first, missing)

    def _poll(self, reader: _Reader, operation: Operation, poll: Poll, lasts: dict[TopicPartition, int]) -> None:
        where = poll.where
        is_internal = where in lasts
        position = reader.positions.get(where)
        expected = lasts[where] + 1 if is_internal else position.offset if position else -1
        if reader.has_moved_since(where, operation.invoke_line):
            lasts[where] = poll.records[-1][0]
            return
        for offset, value in poll.records:
            if poll.ending is not None and not str(value).endswith(poll.ending):
                self._unwanted.append(_unwanted(operation, where, offset, value))
            if offset != expected and expected >= 0:
                line_before = operation.line if is_internal or position is None else position.line
                if offset < expected:
                    self._backward.append(_backward(operation, where, expected, offset, is_internal, line_before))
                else:
                    kind = Kind.INT_POLL_SKIP if is_internal else Kind.POLL_SKIP
                    self._jumps.append(_Jump(operation, where, expected, offset, kind, line_before, poll.ending))
            expected = offset + 1
            is_internal = True
        lasts[where] = expected - 1


def _move(reader: _Reader, op: Assign | Subscribe | Seek, line: int) -> None:
    match op:
        case Assign():
            reader.assign(op, line)
        case Subscribe():
            reader.move_all(line)
        case Seek():
            reader.move(op.where, op.position, line)


def _known(value_at: dict[int, Value], start_offset: int, end_offset: int) -> list[int]:
    if end_offset - start_offset > len(value_at):  # an absurd offset must not cost as many steps
        return sorted(offset for offset in value_at if start_offset <= offset < end_offset)
    return [offset for offset in range(start_offset, end_offset) if offset in value_at]


def _backward(
    operation: Operation, where: TopicPartition, expected: int, offset: int, is_internal: bool, line_before: int
) -> Anomaly:
    return Anomaly(
        kind=Kind.INT_NONMONOTONIC_POLL if is_internal else Kind.NONMONOTONIC_POLL,
        where=where,
        text=f"{operation.process} polled offset {offset} when {expected} was next",
        offsets=(expected - 1, offset) if expected else (offset,),
        lines=(line_before, operation.line),
    )


def _unwanted(operation: Operation, where: TopicPartition, offset: int, value: Value) -> Anomaly:
    return Anomaly(
        kind=Kind.WRONG_FILTER,
        where=where,
        text=f"{operation.process} polled {value!r} at offset {offset}, which its filter excludes",
        offsets=(offset,),
        values=(value,),
        lines=(operation.line,),
    )


def _skip(jump: _Jump, skipped: list[int], values: tuple[Value, ...]) -> Anomaly:
    return Anomaly(
        kind=jump.kind,
        where=jump.where,
        text=f"{jump.operation.process} skipped {len(skipped)} known records from {skipped[0]} to {jump.end_offset}",
        offsets=tuple(skipped[:SHOWN_OFFSETS]),
        values=values,
        lines=(jump.line_before, jump.operation.line),
    )


def _gap(jump: _Jump, first: int, missing: int) -> Anomaly:
    return Anomaly(
        kind=Kind.OFFSET_GAP,
        where=jump.where,
        text=f"{missing} offsets from {first} on hold nothing, but {jump.end_offset} was polled",
        offsets=(first, jump.end_offset),
        lines=(jump.line_before, jump.operation.line),
    )
