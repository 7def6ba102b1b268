"""Histories of push subscriptions, written by hand, for tests."""

from typing import Any

from tests.history.format import (
    Copies,
    DeadLetter,
    DeadLetters,
    Disturb,
    Drained,
    Function,
    Handling,
    Push,
    TopicPartition,
    Value,
)
from tests.history.history_builder import ORDERS, HistoryBuilder, abc
from tests.history.queue_builder import DEAD, letter
from tests.history.recorder import OpenOperation

NAME = "pack"
POISON = letter("b", origin_offset=1, group=NAME, reason="poison")
MIRROR: TopicPartition = ("mirror", 0)
LOCK_MS = 1


class PushBuilder:
    """Records a, b and c were sent. The subscription `pack` has a dead-letter topic."""

    def __init__(self, **settings: Any) -> None:
        self.history: HistoryBuilder = abc()
        self.recorder = self.history.recorder
        push = Push(topics=("orders",), **{"dead_letter_topic": DEAD[0], **settings})
        self.recorder.done("operator", Function.PUSH, [push], group=NAME)

    def handled(self, *records: tuple[int, Value], refused: tuple[int, ...] = ()) -> None:
        """The target was given these records, and has handled all but the refused ones."""
        operation = self.begun(*records)
        self.recorder.ok(
            operation, [Handling(ORDERS, tuple(each for each in records if each[0] not in refused), refused)]
        )

    def failed(self, *records: tuple[int, Value]) -> None:
        """The target answered that it has failed with these records."""
        self.recorder.fail(self.begun(*records))

    def begun(self, *records: tuple[int, Value]) -> OpenOperation:
        """The target was given these records."""
        return self.recorder.invoke("target", Function.HANDLE, [Handling(ORDERS, records)], group=NAME)

    def disturbed(self, *, lasts_ms: int = 0, group: str | None = None) -> None:
        """A delivery was killed, so that an answer may have been lost."""
        self.recorder.done("injector", Function.DISTURB, [Disturb("deliver killed", lasts_ms)], group=group)

    def stopped(self) -> None:
        """An operator pauses or deletes the subscription."""
        self.recorder.ok(self.recorder.invoke("operator", Function.STOP, group=NAME))

    def resumed(self) -> None:
        self.recorder.ok(self.recorder.invoke("operator", Function.RESUME, group=NAME))

    def passes(self, milliseconds: float) -> None:
        """Let this time pass."""
        self.history.now_ns += int(milliseconds * 1_000_000)

    def found_dead(self, *letters: DeadLetter, where: TopicPartition = DEAD) -> None:
        self.recorder.done("reader", Function.DEAD_LETTERS, [DeadLetters(where, letters)])

    def found_copies(self, *records: tuple[int, Value], where: TopicPartition = MIRROR) -> None:
        """A reader found these in the topic that the subscription copies to."""
        self.recorder.done("reader", Function.COPIES, [Copies(where, records)], group=NAME)

    def drained(self) -> None:
        self.recorder.done("drain", Function.DRAINED, [Drained("orders")], group=NAME)

    def found(self) -> dict[str, int]:
        return self.history.found()
