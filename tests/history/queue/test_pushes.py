"""A subscription's target handles each record, in order for the first time, or the record is a dead letter once."""

from dataclasses import replace

import pytest

from tests.history.format import DeadLetter, DeadLetters, Drained, Function, Handling, Push, TopicPartition, Value
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc
from tests.history.queue_builder import DEAD, letter

NAME = "pack"
POISON = letter("b", origin_offset=1, group=NAME, reason="poison")


class PushBuilder:
    """Records a, b and c were sent. The subscription `pack` has a dead-letter topic."""

    def __init__(self, *, is_ordered: bool = True, ending: str | None = None) -> None:
        self.history: HistoryBuilder = abc()
        self._recorder = self.history.recorder
        push = Push(topics=("orders",), is_ordered=is_ordered, dead_letter_topic=DEAD[0], ending=ending)
        self._recorder.done("operator", Function.PUSH, [push], group=NAME)

    def handled(self, *records: tuple[int, Value]) -> None:
        self._recorder.done("target", Function.HANDLE, [Handling(ORDERS, records)], group=NAME)

    def found_dead(self, *letters: DeadLetter, where: TopicPartition = DEAD) -> None:
        self._recorder.done("reader", Function.DEAD_LETTERS, [DeadLetters(where, letters)])

    def drained(self) -> None:
        self._recorder.done("drain", Function.DRAINED, [Drained("orders")], group=NAME)

    def found(self) -> dict[str, int]:
        return self.history.found()


def good() -> PushBuilder:
    """Record b is poison. The batch of all three was tried again after its answer was lost."""
    history = PushBuilder()
    history.handled((0, "a"))
    history.handled((0, "a"))
    history.found_dead(POISON)
    history.handled((2, "c"))
    history.drained()
    return history


def test_nothing_is_wrong_when_each_record_is_handled_or_dead() -> None:
    history = good()
    assert history.found() == {}
    counts = history.history.check().counts
    assert (counts.handled, counts.dead_letters) == (3, 1)


def test_unhandled_when_the_target_never_got_it() -> None:
    history = PushBuilder()
    history.handled((0, "a"), (1, "b"))
    history.drained()
    assert history.found() == {}  # nobody has looked into the dead-letter topic
    history.found_dead()
    assert history.found() == {"unhandled": 1}


def test_truncated_record_need_not_be_handled() -> None:
    history = PushBuilder()
    history.handled((2, "c"))
    history.history.truncated(2)
    history.found_dead()
    history.drained()
    assert history.found() == {}


def test_record_sent_after_the_drain_need_not_be_handled() -> None:
    history = good()
    history.history.sent("producer", ("late", 3))
    assert history.history.found(allow_unseen=True) == {}


def test_handled_late_when_a_later_record_came_first() -> None:
    history = PushBuilder()
    history.handled((1, "b"))
    history.handled((0, "a"))
    history.handled((2, "c"))
    [example] = history.history.check().examples
    assert example.anomaly.kind == "handled-late"
    assert "'a' at offset 0 was handled for the first time after 'b' at 1" in example.anomaly.text


def test_handled_late_when_a_batch_is_out_of_order() -> None:
    history = PushBuilder()
    history.handled((0, "a"), (2, "c"), (1, "b"))
    assert history.found() == {"handled-late": 1}


def test_parallel_mode_has_no_order() -> None:
    history = PushBuilder(is_ordered=False)
    history.handled((2, "c"), (0, "a"))
    history.handled((1, "b"))
    assert history.found() == {}


def test_wrong_filter_when_the_target_got_a_record_that_it_excludes() -> None:
    history = PushBuilder(ending="a")
    history.handled((0, "a"))
    history.found_dead()
    history.drained()
    assert history.found() == {}
    history.handled((1, "b"))
    assert history.found() == {"wrong-filter": 1}


def test_inconsistent_offsets_when_the_target_got_another_record() -> None:
    history = PushBuilder()
    history.handled((0, "x"))
    assert history.found()["inconsistent-offsets"] == 1


def test_dead_letter_twice() -> None:
    history = good()
    history.found_dead(POISON, replace(POISON, offset=1))
    assert history.found() == {"dead-letter-twice": 1}


@pytest.mark.parametrize(
    "wrong", [replace(POISON, value="a"), replace(POISON, origin_offset=2), replace(POISON, origin=OTHER)]
)
def test_wrong_dead_letter_when_its_headers_name_another_record(wrong: DeadLetter) -> None:
    history = PushBuilder()
    history.found_dead(wrong)
    assert history.found() == {"wrong-dead-letter": 1}


def test_wrong_dead_letter_when_it_stands_in_another_topic() -> None:
    history = PushBuilder()
    history.found_dead(POISON, where=("elsewhere", 0))
    assert history.found() == {"wrong-dead-letter": 1}
