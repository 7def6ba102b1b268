"""Operations: an invoke paired with its completion.

All stages after the parser see whole operations only, in order of completion. An operation that never completed comes
last, as a maybe.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.history.format import (
    Acks,
    Event,
    Function,
    MalformedHistoryError,
    MicroOp,
    Outcome,
    Poll,
    Schedule,
    Send,
    TopicPartition,
)
from tests.history.parsing import parse_line


@dataclass(slots=True, kw_only=True)
class Operation:
    """One operation of a process, from `start_ns` to `end_ns`.

    `line` is the line of the completion. Without one it is the line of the invoke, `is_open` holds, and the outcome is
    MAYBE. `invoke_line` is the line of the invoke, or of the completion if there is no invoke. `attempts` is None if it
    is unknown.
    """

    line: int
    invoke_line: int
    process: str
    function: Function
    outcome: Outcome
    start_ns: int
    end_ns: int
    ops: tuple[MicroOp, ...]
    acks: Acks
    attempts: int | None
    group: str | None
    is_open: bool = False

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def has_failed(self) -> bool:
        return self.outcome is Outcome.FAIL

    @property
    def asks_durability(self) -> bool:
        """Return whether G1 holds for its sends if they took effect: a majority of zones must have them."""
        return self.acks is Acks.QUORUM or self.acks is Acks.ALL

    @property
    def sends(self) -> list[Send]:
        return [op for op in self.ops if type(op) is Send]

    @property
    def polls(self) -> list[Poll]:
        return [op for op in self.ops if type(op) is Poll]

    def sends_by_partition(self) -> dict[TopicPartition, list[Send]]:
        """Return its sends to each partition, in order."""
        sends: dict[TopicPartition, list[Send]] = {}
        for send in self.sends:
            sends.setdefault(send.where, []).append(send)
        return sends


def read_operations(lines: Iterable[str | bytes]) -> Iterator[Operation]:
    """Pair the lines of a history except blank ones. Raises MalformedHistoryError at the first that does not fit."""
    open_events: dict[tuple[str, int | None], Event] = {}
    time_ns = 0
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        event = parse_line(line, text)
        if event.time_ns < time_ns:
            raise MalformedHistoryError(line, f"time_ns {event.time_ns} lies before the line above ({time_ns})")
        time_ns = event.time_ns
        key = event.process, event.id
        invoke = open_events.pop(key, None)
        if event.outcome is not Outcome.INVOKE:
            yield _alone(event) if invoke is None else _pair(invoke, event)
            continue
        if invoke is not None:
            raise MalformedHistoryError(line, f"{_name(event)} is open since line {invoke.line}")
        open_events[key] = event
    for event in open_events.values():
        yield _open(event, time_ns)


def _pair(invoke: Event, event: Event) -> Operation:
    if event.start_ns is not None:
        raise MalformedHistoryError(event.line, f"start_ns, but {_name(event)} was invoked in line {invoke.line}")
    if event.function is not invoke.function:
        raise MalformedHistoryError(
            event.line, f"{_name(event)} was invoked as {invoke.function} in line {invoke.line}"
        )
    if invoke.ops and event.ops and _identities(invoke) not in ([], _identities(event)):
        raise MalformedHistoryError(event.line, f"{_name(event)} names other sends than its invoke, line {invoke.line}")
    return Operation(
        line=event.line,
        invoke_line=invoke.line,
        process=event.process,
        function=event.function,
        outcome=event.outcome,
        start_ns=invoke.time_ns,
        end_ns=event.time_ns,
        ops=event.ops or invoke.ops,
        acks=event.acks or invoke.acks or Acks.QUORUM,
        attempts=_attempts(event),
        group=event.group or invoke.group,
    )


def _alone(event: Event) -> Operation:
    return Operation(
        line=event.line,
        invoke_line=event.line,
        process=event.process,
        function=event.function,
        outcome=event.outcome,
        start_ns=event.time_ns if event.start_ns is None else event.start_ns,
        end_ns=event.time_ns,
        ops=event.ops,
        acks=event.acks or Acks.QUORUM,
        attempts=_attempts(event),
        group=event.group,
    )


def _open(invoke: Event, end_ns: int) -> Operation:
    return Operation(
        line=invoke.line,
        invoke_line=invoke.line,
        process=invoke.process,
        function=invoke.function,
        outcome=Outcome.MAYBE,
        start_ns=invoke.time_ns,
        end_ns=end_ns,
        ops=invoke.ops,
        acks=invoke.acks or Acks.QUORUM,
        attempts=None,
        group=invoke.group,
        is_open=True,
    )


def _attempts(event: Event) -> int | None:
    return 1 if event.attempts is None and event.outcome is Outcome.OK else event.attempts


def _identities(event: Event) -> list[tuple[TopicPartition, object]]:
    return [(op.where, op.value) for op in event.ops if type(op) is Send or type(op) is Schedule]


def _name(event: Event) -> str:
    return f"{event.function} of {event.process!r}" + ("" if event.id is None else f" with id {event.id}")
