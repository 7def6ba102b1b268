"""What a history tells of push subscriptions: invocations of their targets, dead letters, copies, stops, disturbances.

An invocation that failed, or that never ended, has handled nothing for sure.
"""

from dataclasses import dataclass, field

from tests.history.format import (
    Copies,
    DeadLetter,
    DeadLetters,
    Disturb,
    Drained,
    Function,
    Handling,
    Push,
    Schedule,
    Send,
    TopicPartition,
    Value,
)
from tests.history.model.operations import Operation

_MS = 1_000_000
Place = tuple[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Records of one partition in one invocation of a target. `is_answered`: it has handled the records.

    `refused` are offsets that its answer names as failed. An invocation with records of several partitions is several.
    """

    records: tuple[tuple[int, Value], ...]
    refused: tuple[int, ...]
    is_answered: bool
    start_ns: int
    end_ns: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """The begin of a record's first send, the end of its last, and when a producer first knew that it is in the log."""

    start_ns: int
    end_ns: int
    known_ns: int | None


@dataclass(slots=True)
class SubscriptionFacts:
    """All facts of one subscription.

    `created_ns` are begin and end of its creation. `letters` and `copies` are by their places, `drained_ns` is the
    begin of a topic's last drain. `stopped_ns` are the ends of stops, `resumed_ns` the begins of resumptions.
    """

    push: Push
    created_ns: tuple[int, int]
    invocations: dict[TopicPartition, list[Invocation]] = field(default_factory=dict)
    letters: dict[Place, dict[Place, tuple[DeadLetter, int]]] = field(default_factory=dict)
    copies: dict[TopicPartition, dict[int, tuple[Value, int]]] = field(default_factory=dict)
    drained_ns: dict[str, int] = field(default_factory=dict)
    stopped_ns: list[int] = field(default_factory=list)
    resumed_ns: list[int] = field(default_factory=list)
    disturbed_ns: list[tuple[int, int]] = field(default_factory=list)

    def answered(self, where: TopicPartition) -> list[Invocation]:
        """The invocations with records of the partition that have handled them."""
        return [each for each in self.invocations.get(where, ()) if each.is_answered]


class PushFacts:
    """The facts of all subscriptions, and of the records that were sent."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, SubscriptionFacts] = {}
        self.sent: dict[tuple[TopicPartition, Value], Sending] = {}
        self.dead_letter_topics_read: set[str] = set()
        self._disturbed_ns: list[tuple[int, int]] = []  # of all subscriptions
        self._early: dict[str, list[Operation]] = {}  # what a target got before the answer of the creation

    def observe(self, operation: Operation) -> None:
        """Note the operation."""
        facts = None if operation.group is None else self.subscriptions.get(operation.group)
        if facts is None and operation.group is not None and operation.function is Function.HANDLE:
            self._early.setdefault(operation.group, []).append(operation)
        elif facts is not None and operation.function is Function.STOP and operation.is_ok:
            facts.stopped_ns.append(operation.end_ns)
        elif facts is not None and operation.function is Function.RESUME:
            facts.resumed_ns.append(operation.start_ns)
        for op in operation.ops:
            if type(op) is Send or type(op) is Schedule:
                self._send(operation, op)
            elif type(op) is DeadLetters and operation.is_ok:
                self._bury(operation, op)
            elif type(op) is Push and operation.group is not None:
                self._create(operation, op)
            elif type(op) is Disturb:
                disturbed = operation.start_ns, operation.end_ns + op.lasts_ms * _MS
                (self._disturbed_ns if facts is None else facts.disturbed_ns).append(disturbed)
            elif facts is None:
                continue
            elif type(op) is Handling:
                _invoke(facts, operation, op)
            elif type(op) is Copies and operation.is_ok:
                found = facts.copies.setdefault(op.where, {})
                for offset, value in op.records:
                    found.setdefault(offset, (value, operation.line))
            elif type(op) is Drained and operation.is_ok:
                facts.drained_ns[op.topic] = operation.start_ns

    def was_disturbed(self, facts: SubscriptionFacts, from_ns: int, to_ns: int) -> bool:
        """Whether an answer of the subscription's target may have been lost in that time."""
        known = (*facts.disturbed_ns, *self._disturbed_ns)
        return any(start_ns <= to_ns and end_ns >= from_ns for start_ns, end_ns in known)

    def _create(self, operation: Operation, op: Push) -> None:
        assert operation.group is not None
        created_ns = operation.start_ns, operation.end_ns
        self.subscriptions[operation.group] = SubscriptionFacts(push=op, created_ns=created_ns)
        for early in self._early.pop(operation.group, ()):
            self.observe(early)

    def _send(self, operation: Operation, op: Send | Schedule) -> None:
        known_ns = operation.end_ns if type(op) is Send and operation.is_ok else None
        before = self.sent.get((op.where, op.value))
        self.sent[op.where, op.value] = Sending(
            start_ns=operation.start_ns if before is None else min(before.start_ns, operation.start_ns),
            end_ns=operation.end_ns,
            known_ns=before.known_ns if before is not None and before.known_ns is not None else known_ns,
        )

    def _bury(self, operation: Operation, op: DeadLetters) -> None:
        self.dead_letter_topics_read.add(op.where[0])
        for letter in op.letters:
            facts = self.subscriptions.get(letter.group)
            if facts is not None:
                places = facts.letters.setdefault((letter.origin, letter.origin_offset), {})
                places.setdefault((op.where, letter.offset), (letter, operation.line))


def _invoke(facts: SubscriptionFacts, operation: Operation, op: Handling) -> None:
    invocation = Invocation(
        records=op.records,
        refused=op.refused,
        is_answered=operation.is_ok,
        start_ns=operation.start_ns,
        end_ns=operation.end_ns,
        line=operation.line,
    )
    facts.invocations.setdefault(op.where, []).append(invocation)
