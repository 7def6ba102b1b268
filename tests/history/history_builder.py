"""A history written by hand, a step per tick of its clock, for tests."""

import json
from collections.abc import Iterable

from tests.history.checker import Options, check
from tests.history.format import Acks, Assign, Function, MicroOp, Poll, Seek, Send, TopicPartition, Truncate, Value
from tests.history.micro_ops import encode_micro_op
from tests.history.recorder import OpenOperation, Recorder
from tests.history.report import Report

ORDERS: TopicPartition = ("orders", 0)
OTHER: TopicPartition = ("orders", 1)


class HistoryBuilder:
    """Writes the history of some processes. Every event comes 10 ns after the one before."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.now_ns = 0
        self.recorder = Recorder(self, now_ns=self._tick)

    def write(self, line: bytes, /) -> object:
        self.lines.append(line)
        return len(line)

    def close(self) -> None:
        pass

    def begin(self, process: str, *values: Value, where: TopicPartition = ORDERS) -> OpenOperation:
        """Begin to send `values`."""
        return self.recorder.invoke(process, Function.SEND, [Send(where, value) for value in values])

    def sent(
        self,
        process: str,
        *records: tuple[Value, int | None],
        where: TopicPartition = ORDERS,
        acks: Acks | None = None,
        attempts: int | None = None,
    ) -> None:
        """Send, and get an acknowledgement with these offsets."""
        ops = [Send(where, value, offset) for value, offset in records]
        operation = self.recorder.invoke(process, Function.SEND, ops, acks=acks)
        self.recorder.ok(operation, ops, attempts=attempts)

    def maybe_sent(
        self, process: str, *values: Value, where: TopicPartition = ORDERS, attempts: int | None = None
    ) -> None:
        self.recorder.maybe(self.begin(process, *values, where=where), attempts=attempts)

    def failed_to_send(self, process: str, *values: Value, where: TopicPartition = ORDERS) -> None:
        self.recorder.fail(self.begin(process, *values, where=where))

    def polled(self, process: str, *polls: Poll) -> None:
        """Poll once, with these results."""
        self.recorder.ok(self.recorder.invoke(process, Function.POLL), polls)

    def failed_to_poll(self, process: str, poll: Poll) -> None:
        """Poll, get these records, and take it back, as an aborted transaction does."""
        operation = self.recorder.invoke(process, Function.POLL)
        fields = {"process": process, "id": operation.id, "type": "fail", "f": "poll", "time_ns": self._tick()}
        self.write(json.dumps({**fields, "ops": [encode_micro_op(poll)]}).encode() + b"\n")

    def assigned(
        self, process: str, *kept: TopicPartition, started: Iterable[tuple[TopicPartition, int | None]] = ()
    ) -> None:
        self.recorder.done(process, Function.ASSIGN, [Assign(kept, tuple(started))])

    def sought(self, process: str, position: int | None, where: TopicPartition = ORDERS) -> None:
        self.recorder.done(process, Function.SEEK, [Seek(where, position)])

    def truncated(self, before_offset: int, where: TopicPartition = ORDERS) -> None:
        self.recorder.ok(self.recorder.invoke("admin", Function.TRUNCATE, [Truncate(where, before_offset)]))

    def committed(self, process: str, *ops: MicroOp) -> None:
        """Commit a transaction."""
        invoked = [Send(op.where, op.value) if isinstance(op, Send) else op for op in ops if not isinstance(op, Poll)]
        self.recorder.ok(self.recorder.invoke(process, Function.TXN, invoked), ops)

    def check(self, **options: int) -> Report:
        return check(self.lines, Options(**options))  # type: ignore[arg-type]  # flags, and one number

    def found(self, **options: int) -> dict[str, int]:
        """The number of anomalies of each kind."""
        return {str(kind): count for kind, count in self.check(**options).found.items()}

    def _tick(self) -> int:
        self.now_ns += 10
        return self.now_ns


def read(*records: tuple[int, Value], where: TopicPartition = ORDERS) -> Poll:
    """The result of a poll: pairs of offset and value."""
    return Poll(where, records)


def sent_and_read(*records: tuple[Value, int]) -> HistoryBuilder:
    """A history in which one producer sent these one by one, and a reader read them by offset."""
    history = HistoryBuilder()
    for value, offset in records:
        history.sent("producer", (value, offset))
    history.polled("reader", read(*sorted((offset, value) for value, offset in records)))
    return history


def abc() -> HistoryBuilder:
    """Records a, b and c at offsets 0, 1 and 2, sent one by one and read by one reader."""
    return sent_and_read(("a", 0), ("b", 1), ("c", 2))
