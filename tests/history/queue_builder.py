"""Histories of share groups and delayed records, written by hand, for tests."""

from collections.abc import Iterable

from tests.history.format import (
    Acknowledge,
    AckResult,
    Acquired,
    Cancel,
    DeadLetter,
    DeadLetters,
    Drained,
    Function,
    Outcome,
    Schedule,
    Send,
    Share,
    TopicPartition,
    Value,
    Verb,
)
from tests.history.history_builder import ORDERS, HistoryBuilder, read

GROUP = "workers"
DEAD: TopicPartition = ("orders.dead", 0)
LOCK_MS = 1
MS = 1_000_000


class QueueBuilder(HistoryBuilder):
    """Writes what workers of the group `workers` and writers of delayed records do."""

    def passes(self, milliseconds: float) -> None:
        """Let this time pass."""
        self.now_ns += int(milliseconds * MS)

    def made(
        self,
        *,
        deliveries_max: int | None = None,
        is_by_key: bool = False,
        dead_letter_topic: str | None = None,
        ending: str | None = None,
    ) -> None:
        """Make the group, for the topic `orders`."""
        share = Share(
            topics=(ORDERS[0],),
            deliveries_max=deliveries_max,
            is_by_key=is_by_key,
            dead_letter_topic=dead_letter_topic,
            ending=ending,
        )
        self.recorder.done("operator", Function.SHARE, [share], group=GROUP)

    def sent_with_keys(self, *records: tuple[Value, str | None]) -> None:
        """Send these from offset 0 on, each with its key, and let a reader read them."""
        for offset, (value, key) in enumerate(records):
            operation = self.recorder.invoke("producer", Function.SEND, [Send(ORDERS, value, None, None, key)])
            self.recorder.ok(operation, [Send(ORDERS, value, offset, None, key)])
        self.polled("reader", read(*((offset, value) for offset, (value, _) in enumerate(records))))

    def acquired(
        self, process: str, lock_id: str, *records: tuple[int, Value], count: int = 1, left_ms: int = LOCK_MS
    ) -> None:
        """Acquire these records under one lock."""
        self.acquired_locks(process, Acquired(ORDERS, lock_id, count, left_ms, records))

    def acquired_locks(self, process: str, *locks: Acquired) -> None:
        """Acquire several locks at once."""
        self.recorder.ok(self.recorder.invoke(process, Function.ACQUIRE, group=GROUP), locks)

    def decided(
        self,
        process: str,
        verb: Verb,
        lock_id: str,
        *offsets: int,
        result: AckResult | None = AckResult.OK,
        outcome: Outcome = Outcome.OK,
        detail: str | int | None = None,
    ) -> None:
        """Acknowledge these offsets of a lock, or all of them."""
        ranges = tuple((offset, offset + 1) for offset in offsets) or None
        asked = Acknowledge(ORDERS, lock_id, verb, ranges, None, detail)
        operation = self.recorder.invoke(process, Function.ACKNOWLEDGE, [asked], group=GROUP)
        if outcome is Outcome.OK:
            self.recorder.ok(operation, [Acknowledge(ORDERS, lock_id, verb, ranges, result, detail)])
        elif outcome is Outcome.FAIL:
            self.recorder.fail(operation)
        else:
            self.recorder.maybe(operation)

    def accepted(self, process: str, lock_id: str, *offsets: int) -> None:
        self.decided(process, Verb.ACCEPT, lock_id, *offsets)

    def found_dead(self, *letters: DeadLetter, where: TopicPartition = DEAD) -> None:
        """Let a reader find these in the dead-letter topic."""
        operation = self.recorder.invoke("reader", Function.DEAD_LETTERS)
        self.recorder.ok(operation, [DeadLetters(where, letters)])

    def drained(self) -> None:
        """Let a worker find that the group has nothing left."""
        self.recorder.ok(self.recorder.invoke("drain", Function.DRAINED, group=GROUP), [Drained(ORDERS[0])])

    def scheduled(self, process: str, *records: tuple[Value, str], due_ns: int, outcome: Outcome = Outcome.OK) -> None:
        """Send these delayed records, pairs of value and id, in one operation."""
        self._end(
            process,
            Function.SCHEDULE,
            [Schedule(ORDERS, value, due_ns, timer_id) for value, timer_id in records],
            outcome,
        )

    def cancelled(self, timer_id: str, *, outcome: Outcome = Outcome.OK) -> None:
        """Cancel what waits under that id."""
        self._end("operator", Function.CANCEL, [Cancel(ORDERS[0], timer_id)], outcome)

    def _end(self, process: str, function: Function, ops: Iterable[Schedule | Cancel], outcome: Outcome) -> None:
        operation = self.recorder.invoke(process, function, list(ops))
        if outcome is Outcome.OK:
            self.recorder.ok(operation)
        elif outcome is Outcome.FAIL:
            self.recorder.fail(operation)
        else:
            self.recorder.maybe(operation)

    def text(self, kind: str) -> str:
        """The text of the only anomaly, which is of that kind."""
        [example] = self.check().examples
        assert str(example.anomaly.kind) == kind, example.anomaly
        return example.anomaly.text


def letter(
    value: Value = "a",
    *,
    offset: int = 0,
    origin_offset: int = 0,
    key: str | None = None,
    group: str = GROUP,
    deliveries: int = 2,
    reason: str = "deliveries",
) -> DeadLetter:
    """A dead letter of the partition `ORDERS`."""
    return DeadLetter(
        offset=offset,
        value=value,
        key=key,
        origin=ORDERS,
        origin_offset=origin_offset,
        group=group,
        deliveries=deliveries,
        reason=reason,
    )
