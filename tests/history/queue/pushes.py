"""The check of push subscriptions (G13): unhandled, handled-late, wrong-filter and their dead letters.

A target may handle a record again, at any later time. In ordered mode it handles the records of a partition in order
for the first time. Two operations whose times overlap have no order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import (
    DeadLetter,
    DeadLetters,
    Drained,
    Handling,
    Push,
    Schedule,
    Send,
    TopicPartition,
    Value,
)
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handled:
    """The first time that a record was handled. `index` is its place among the records of its operation."""

    value: Value
    start_ns: int
    end_ns: int
    index: int
    line: int


@dataclass(slots=True)
class _Facts:
    """All facts of one subscription. `letters` are by their places, `drained_ns` the begin of a topic's last drain."""

    push: Push
    handled: dict[TopicPartition, dict[int, _Handled]] = field(default_factory=dict)
    letters: dict[tuple[TopicPartition, int], dict[tuple[TopicPartition, int], tuple[DeadLetter, int]]] = field(
        default_factory=dict
    )
    drained_ns: dict[str, int] = field(default_factory=dict)


class Pushes:
    """The push subscriptions of a history."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, _Facts] = {}
        self._sent_ns: dict[tuple[TopicPartition, Value], int] = {}
        self._dead_letter_topics_read: set[str] = set()

    def observe(self, operation: Operation) -> None:
        """Note the operation. What a target handled counts whatever its answer."""
        facts = None if operation.group is None else self._subscriptions.get(operation.group)
        for op in operation.ops:
            if type(op) is Send or type(op) is Schedule:
                self._sent_ns[op.where, op.value] = operation.end_ns
            elif type(op) is DeadLetters and operation.is_ok:
                self._bury(operation, op)
            elif type(op) is Push and operation.group is not None:
                self._subscriptions[operation.group] = _Facts(push=op)
            elif type(op) is Handling and facts is not None:
                _handle(facts, operation, op)
            elif type(op) is Drained and facts is not None and operation.is_ok:
                facts.drained_ns[op.topic] = operation.start_ns

    def _bury(self, operation: Operation, op: DeadLetters) -> None:
        self._dead_letter_topics_read.add(op.where[0])
        for letter in op.letters:
            facts = self._subscriptions.get(letter.group)
            if facts is not None:
                places = facts.letters.setdefault((letter.origin, letter.origin_offset), {})
                places.setdefault((op.where, letter.offset), (letter, operation.line))

    def anomalies(self, order: VersionOrder, truncations: Truncations) -> Iterator[Anomaly]:
        """Call `ledger.settle` first: the rules look up where each record is."""
        for name, facts in self._subscriptions.items():
            for where, handled in sorted(facts.handled.items()):
                yield from _filtered(name, facts.push, where, handled)
                if facts.push.is_ordered:
                    yield from _late(name, where, handled)
            yield from _dead_letters(name, facts, order)
            for topic, drained_ns in facts.drained_ns.items():
                for where in sorted(where for where in order.partitions if where[0] == topic):
                    yield from self._unhandled(name, facts, where, drained_ns, order, truncations.start_offset(where))

    def _unhandled(
        self,
        name: str,
        facts: _Facts,
        where: TopicPartition,
        drained_ns: int,
        order: VersionOrder,
        start_offset: int,
    ) -> Iterator[Anomaly]:
        dead_topic, ending = facts.push.dead_letter_topic, facts.push.ending
        for offset, value in sorted(order[where].value_at.items()):
            is_wanted = ending is None or str(value).endswith(ending)
            is_late = self._sent_ns.get((where, value), 0) > drained_ns
            if offset < start_offset or not is_wanted or is_late or offset in facts.handled.get(where, {}):
                continue
            is_dead = (where, offset) in facts.letters
            if is_dead or (dead_topic is not None and dead_topic not in self._dead_letter_topics_read):
                continue  # where nobody has read the dead letters, it may be one of them
            text = f"{value!r} at offset {offset} was never handled by subscription {name}"
            yield Anomaly(kind=Kind.UNHANDLED, where=where, text=text, offsets=(offset,), values=(value,))


def _handle(facts: _Facts, operation: Operation, op: Handling) -> None:
    handled = facts.handled.setdefault(op.where, {})
    for index, (offset, value) in enumerate(op.records):
        first = _Handled(
            value=value, start_ns=operation.start_ns, end_ns=operation.end_ns, index=index, line=operation.line
        )
        known = handled.get(offset)
        if known is None or first.end_ns < known.start_ns:
            handled[offset] = first


def _filtered(name: str, push: Push, where: TopicPartition, handled: dict[int, _Handled]) -> Iterator[Anomaly]:
    for offset, each in sorted(handled.items()):
        if push.ending is not None and not str(each.value).endswith(push.ending):
            text = f"subscription {name} of what ends with {push.ending!r} has handled {each.value!r}"
            yield Anomaly(
                kind=Kind.WRONG_FILTER,
                where=where,
                text=text,
                offsets=(offset,),
                values=(each.value,),
                lines=(each.line,),
            )


def _late(name: str, where: TopicPartition, handled: dict[int, _Handled]) -> Iterator[Anomaly]:
    """Goes from the last offset down, and compares each record with the one above that was handled first."""
    first: tuple[int, _Handled] | None = None
    for offset, each in sorted(handled.items(), reverse=True):
        if first is not None and _is_before(first[1], each):
            text = (
                f"{each.value!r} at offset {offset} was handled for the first time after {first[1].value!r} at "
                f"{first[0]}, by subscription {name}"
            )
            yield Anomaly(
                kind=Kind.HANDLED_LATE,
                where=where,
                text=text,
                offsets=(offset, first[0]),
                values=(each.value, first[1].value),
                lines=(first[1].line, each.line),
            )
        if first is None or (each.end_ns, each.index) < (first[1].end_ns, first[1].index):
            first = offset, each


def _is_before(one: _Handled, other: _Handled) -> bool:
    return one.index < other.index if one.line == other.line else one.end_ns < other.start_ns


def _dead_letters(name: str, facts: _Facts, order: VersionOrder) -> Iterator[Anomaly]:
    for (where, offset), places in sorted(facts.letters.items()):
        found = [(place, *letter) for place, letter in sorted(places.items(), key=lambda each: each[0])]
        value, lines = found[0][1].value, tuple(line for _, _, line in found)
        if len(found) > 1:
            text = f"{value!r} at offset {offset} is a dead letter of subscription {name} {len(found)} times"
            yield Anomaly(
                kind=Kind.DEAD_LETTER_TWICE, where=where, text=text, offsets=(offset,), values=(value,), lines=lines
            )
        for (at, _), letter, line in found:
            held = order[where].value_at.get(offset)
            why = f"and offset {offset} holds {held!r}" if held != letter.value else ""
            if where[0] not in facts.push.topics or at[0] != facts.push.dead_letter_topic:
                why = f"and {at[0]} is not where that subscription's dead letters of {where[0]} go"
            if why:
                text = f"{letter.value!r} at offset {offset} is a dead letter of subscription {name}, {why}"
                yield Anomaly(
                    kind=Kind.WRONG_DEAD_LETTER,
                    where=where,
                    text=text,
                    offsets=(offset,),
                    values=(letter.value,),
                    lines=(line,),
                )
