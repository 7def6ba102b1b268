"""What a history tells of share groups: per record its deliveries, the decisions about it, and its dead letters.

A decision of an operation that failed is left out. One of a maybe has no end: it may take effect at any later time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.history.format import (
    Acknowledge,
    AckResult,
    Acquired,
    DeadLetter,
    DeadLetters,
    Drained,
    Push,
    Reset,
    Schedule,
    Send,
    Share,
    TopicPartition,
    Value,
    Verb,
)
from tests.history.model.operations import Operation

NEVER_NS = 1 << 62
_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A record under a lock, as an acquire's answer told it. `until_ns` is when the lock ended at the earliest.

    `line` names the acquire: deliveries of one acquire have one line.
    """

    offset: int
    value: Value
    lock_id: str
    count: int
    process: str
    start_ns: int
    end_ns: int
    until_ns: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An acknowledgement of one record. `is_told`: the service answered that it is done, now or before."""

    verb: Verb
    lock_id: str
    result: AckResult | None
    detail: str | int | None
    is_told: bool
    start_ns: int
    end_ns: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLetter:
    """A dead letter that a reader found, and the end of the first read that did."""

    where: TopicPartition
    letter: DeadLetter
    end_ns: int
    line: int


@dataclass(slots=True)
class SharedRecord:
    """All facts of one record in one share group."""

    deliveries: list[Delivery] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    letters: dict[tuple[TopicPartition, int], FoundLetter] = field(default_factory=dict)

    def decisions_under(self, lock_id: str) -> list[Decision]:
        """Return the decisions of the client that had the record under this lock."""
        return [each for each in self.decisions if each.lock_id == lock_id]


@dataclass(slots=True)
class GroupFacts:
    """All facts of one share group. `resets` are begin and end. `drained_ns` is the begin of a topic's last drain."""

    share: Share | None = None
    records: dict[TopicPartition, dict[int, SharedRecord]] = field(default_factory=dict)
    resets: dict[TopicPartition, list[tuple[int, int]]] = field(default_factory=dict)
    drained_ns: dict[str, int] = field(default_factory=dict)
    locks: dict[tuple[TopicPartition, str], set[int]] = field(default_factory=dict)
    acquires: dict[tuple[TopicPartition, int], set[int]] = field(default_factory=dict)  # by line

    def record(self, where: TopicPartition, offset: int) -> SharedRecord:
        """Return the facts of the record, to be added to."""
        return self.records.setdefault(where, {}).setdefault(offset, SharedRecord())

    def may_finish(self, where: TopicPartition, decision: Decision) -> bool:
        """Return whether the decision may have taken the record out of the group.

        A client repeats its call. If the group is reset or made anew between two tries, the first one may have taken
        effect, though the last one finds the lock lost.
        """
        is_lost = decision.result is AckResult.LOST
        return decision.verb in (Verb.ACCEPT, Verb.REJECT) and (
            not is_lost or self.was_reset(where, decision.start_ns, decision.end_ns)
        )

    def was_reset(self, where: TopicPartition, from_ns: int, to_ns: int) -> bool:
        """Return whether an operator may have reset the partition in that time."""
        return any(start <= to_ns and end >= from_ns for start, end in self.resets.get(where, ()))


class ShareFacts:
    """The facts of every share group, and of the records that were sent: their keys, and when their sends ended."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupFacts] = {}
        self.keys: dict[tuple[TopicPartition, Value], str] = {}
        self.sent_ns: dict[tuple[TopicPartition, Value], int] = {}
        self.dead_letter_topics_read: set[str] = set()
        self._subscriptions: set[str] = set()  # their dead letters are those of `pushes`

    def observe(self, operation: Operation) -> None:
        if operation.has_failed:
            return
        facts = None if operation.group is None else self.groups.get(operation.group)
        for op in operation.ops:
            if type(op) is Send or type(op) is Schedule:
                self.sent_ns[op.where, op.value] = operation.end_ns
                if type(op) is Send and op.key is not None:
                    self.keys[op.where, op.value] = op.key
            elif type(op) is DeadLetters and operation.is_ok:
                self._bury(operation, op)
            elif type(op) is Push and operation.group is not None:
                self._subscriptions.add(operation.group)
            elif type(op) is Share and operation.group is not None:
                self.groups.setdefault(operation.group, GroupFacts()).share = op
            elif facts is None:
                continue
            elif type(op) is Acquired and operation.is_ok:
                _deliver(facts, operation, op)
            elif type(op) is Acknowledge:
                _decide(facts, operation, op)
            elif type(op) is Reset:
                end_ns = operation.end_ns if operation.is_ok else NEVER_NS
                facts.resets.setdefault(op.where, []).append((operation.start_ns, end_ns))
            elif type(op) is Drained and operation.is_ok:
                facts.drained_ns[op.topic] = operation.start_ns

    def _bury(self, operation: Operation, op: DeadLetters) -> None:
        self.dead_letter_topics_read.add(op.where[0])
        for letter in op.letters:
            if letter.group in self._subscriptions:
                continue
            record = self.groups.setdefault(letter.group, GroupFacts()).record(letter.origin, letter.origin_offset)
            found = FoundLetter(where=op.where, letter=letter, end_ns=operation.end_ns, line=operation.line)
            record.letters.setdefault((op.where, letter.offset), found)

    def key_of(self, where: TopicPartition, value: Value) -> str | None:
        """Return the record's key, None if it has none."""
        return self.keys.get((where, value))


def _deliver(facts: GroupFacts, operation: Operation, op: Acquired) -> None:
    held = facts.locks.setdefault((op.where, op.lock_id), set())
    together = facts.acquires.setdefault((op.where, operation.line), set())
    for offset, value in op.records:
        held.add(offset)
        together.add(offset)
        delivery = Delivery(
            offset=offset,
            value=value,
            lock_id=op.lock_id,
            count=op.delivery_count,
            process=operation.process,
            start_ns=operation.start_ns,
            end_ns=operation.end_ns,
            until_ns=operation.start_ns + op.left_ms * _MS,
            line=operation.line,
        )
        facts.record(op.where, offset).deliveries.append(delivery)


def _decide(facts: GroupFacts, operation: Operation, op: Acknowledge) -> None:
    """Note the decision for the records that the client was told to be under the lock."""
    decision = Decision(
        verb=op.verb,
        lock_id=op.lock_id,
        result=op.result,
        detail=op.detail,
        is_told=operation.is_ok and op.result is not AckResult.LOST,
        start_ns=operation.start_ns,
        end_ns=operation.end_ns if operation.is_ok else NEVER_NS,
        line=operation.line,
    )
    for offset in _within(facts.locks.get((op.where, op.lock_id), set()), op.ranges):
        facts.record(op.where, offset).decisions.append(decision)


def _within(offsets: set[int], ranges: Iterable[tuple[int, int]] | None) -> list[int]:
    if ranges is None:
        return sorted(offsets)
    chosen = list(ranges)
    return [offset for offset in sorted(offsets) if any(start <= offset < end for start, end in chosen)]
