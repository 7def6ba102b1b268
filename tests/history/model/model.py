"""A model of correct logs, for tests: it plays a list of steps as the history of concurrent clients.

Producers send appends that are acknowledged, fail, or are maybes that take effect at once, late or never. Consumers
poll, seek, and lose and get partitions. An administrator truncates. A worker commits transactions and reads its commits
back. In the end a reader reads everything from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.history.format import Assign, Commit, Committed, Function, Poll, Seek, Send, TopicPartition, Truncate, Value
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder
from tests.history.recorder import OpenOperation

PARTITIONS = (ORDERS, OTHER)
ACTIONS = 15  # a step is an action and three numbers that choose
Step = tuple[int, int, int, int]


@dataclass(slots=True)
class _Log:
    values: list[Value] = field(default_factory=list)
    start_offset: int = 0

    is_idempotent: bool = True

    def append(self, sends: Sequence[Send]) -> list[Send]:
        """Return the sends with their offsets. A repeat of an idempotent producer keeps its first offset (G4)."""
        placed = []
        for send in sends:
            if not (self.is_idempotent and send.value in self.values):
                self.values.append(send.value)
            offset = self.values.index(send.value) if self.is_idempotent else len(self.values) - 1
            placed.append(Send(send.where, send.value, offset))
        return placed


@dataclass(slots=True)
class _Consumer:
    positions: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    open_poll: OpenOperation | None = None


class Model:
    """Plays steps on logs that keep every promise, and writes the events to `history`."""

    def __init__(self, *, is_idempotent: bool = True) -> None:
        self.history = HistoryBuilder()
        self._logs = {where: _Log(is_idempotent=is_idempotent) for where in PARTITIONS}
        self._consumers = {f"consumer-{index}": _Consumer() for index in range(3)}
        self._open_sends: dict[str, tuple[OpenOperation, list[Send]]] = {}
        self._late: list[list[Send]] = []
        self._maybes: dict[str, list[Send]] = {}
        self._values = 0
        self._committed: int | None = None
        for process in self._consumers:
            self.history.assigned(process, started=[(where, 0) for where in PARTITIONS])

    def play(self, steps: Sequence[Step]) -> None:
        """Play the steps, and then read everything from the start."""
        for action, *choices in steps:
            self._step(action, *choices)
        self._begin_send("producer-0", 0, 2)
        self._end_send("producer-0", 0)
        starts = [(where, log.start_offset) for where, log in self._logs.items()]
        self.history.assigned("last", started=starts)
        for where, log in self._logs.items():
            offsets = range(log.start_offset, len(log.values))
            for chunk in (offsets[i : i + 4] for i in range(0, len(offsets), 4)):
                self.history.polled("last", Poll(where, tuple((offset, log.values[offset]) for offset in chunk)))

    def _step(self, action: int, first: int, second: int, third: int) -> None:
        producer, consumer = f"producer-{first % 3}", f"consumer-{first % 3}"
        match action:
            case 0 | 1 | 2:
                self._begin_send(producer, second, 1 + third % 3)
            case 3 | 4 | 5:
                self._end_send(producer, second)
            case 6:
                self._take_late_effect()
            case 7 | 8 | 9:
                self._poll(consumer, second, third)
            case 10:
                self._move(consumer, second, third)
            case 11:
                self._truncate(PARTITIONS[first % 2], second, third)
            case 12:
                self._commit(first, second, third)
            case 13:
                self._read_back()
            case _:
                self._send_again(producer)

    def _begin_send(self, process: str, partition: int, records: int) -> None:
        if process in self._open_sends:
            return
        where = PARTITIONS[partition % 2]
        sends = [Send(where, self._next_value()) for _ in range(records)]
        self._open_sends[process] = self.history.recorder.invoke(process, Function.SEND, sends), sends

    def _end_send(self, process: str, fate: int) -> None:
        if process not in self._open_sends:
            return
        operation, sends = self._open_sends.pop(process)
        log = self._logs[sends[0].where]
        match fate % 7:
            case 0 | 1:
                self.history.recorder.ok(operation, log.append(sends))
            case 2:
                log.append(sends)  # the answer was lost, so the client sent it again
                self.history.recorder.ok(operation, log.append(sends), attempts=2)
            case 3:
                self.history.recorder.fail(operation)
            case 4:
                log.append(sends)
                self.history.recorder.maybe(operation)
                self._maybes[process] = sends
            case 5:
                self.history.recorder.maybe(operation)
                self._late.append(sends)
            case _:
                self.history.recorder.maybe(operation)
                self._maybes[process] = sends

    def _take_late_effect(self) -> None:
        if self._late:
            sends = self._late.pop()
            self._logs[sends[0].where].append(sends)

    def _send_again(self, process: str) -> None:
        if process in self._open_sends or process not in self._maybes:
            return
        sends = self._maybes.pop(process)
        operation = self.history.recorder.invoke(process, Function.SEND, sends)
        self.history.recorder.ok(operation, self._logs[sends[0].where].append(sends))

    def _poll(self, process: str, fate: int, records_max: int) -> None:
        consumer = self._consumers[process]
        if consumer.open_poll is None:
            consumer.open_poll = self.history.recorder.invoke(process, Function.POLL)
            return
        operation, consumer.open_poll = consumer.open_poll, None
        if fate % 5 == 0:
            self.history.recorder.fail(operation)
            return
        polls = [self._fetch(consumer, where, records_max % 5) for where in sorted(consumer.positions)]
        polls += [self._fetch(consumer, where, 2) for where in sorted(consumer.positions)]
        self.history.recorder.ok(operation, polls)

    def _fetch(self, consumer: _Consumer, where: TopicPartition, records_max: int) -> Poll:
        log = self._logs[where]
        start = max(consumer.positions[where], log.start_offset)
        end = max(start, min(start + records_max, len(log.values)))
        consumer.positions[where] = end if end > start else consumer.positions[where]
        return Poll(where, tuple((offset, log.values[offset]) for offset in range(start, end)))

    def _move(self, process: str, kind: int, choice: int) -> None:
        consumer = self._consumers[process]
        where = PARTITIONS[choice % 2]
        position = choice % (len(self._logs[where].values) + 1)
        if kind % 3 == 0 and where in consumer.positions:
            consumer.positions[where] = position
            self.history.recorder.done(process, Function.SEEK, [Seek(where, position)])
        elif kind % 3 == 1:
            consumer.positions.pop(where, None)
            self.history.recorder.done(process, Function.ASSIGN, [Assign(tuple(sorted(consumer.positions)))])
        else:
            kept = tuple(sorted(consumer.positions.keys() - {where}))
            consumer.positions[where] = position
            start = None if kind % 2 else position
            self.history.recorder.done(process, Function.ASSIGN, [Assign(kept, ((where, start),))])

    def _truncate(self, where: TopicPartition, choice: int, fate: int) -> None:
        log = self._logs[where]
        before_offset = choice % (len(log.values) + 1)
        operation = self.history.recorder.invoke("admin", Function.TRUNCATE, [Truncate(where, before_offset)])
        if fate % 4 == 0:
            self.history.recorder.fail(operation)
            return
        log.start_offset = max(log.start_offset, before_offset)
        (self.history.recorder.maybe if fate % 4 == 1 else self.history.recorder.ok)(operation)

    def _commit(self, records: int, fate: int, choice: int) -> None:
        sends = [Send(PARTITIONS[(choice + index) % 2], self._next_value()) for index in range(1 + records % 3)]
        commit = Commit(ORDERS, choice)
        operation = self.history.recorder.invoke("worker", Function.TXN, [*sends, commit], group="workers")
        if fate % 4 == 0:
            self.history.recorder.fail(operation)
        elif fate % 4 == 1:
            self.history.recorder.maybe(operation)
        else:
            self._committed = choice
            placed = [self._logs[send.where].append([send])[0] for send in sends]
            if fate % 4 == 2:
                self.history.recorder.maybe(operation)
            else:
                self.history.recorder.ok(operation, [*placed, commit])

    def _read_back(self) -> None:
        operation = self.history.recorder.invoke("worker", Function.COMMITTED, group="workers")
        self.history.recorder.ok(operation, [Committed(ORDERS, self._committed), Committed(OTHER, None)])

    def _next_value(self) -> str:
        self._values += 1
        return f"v{self._values}"
