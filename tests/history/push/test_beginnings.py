"""A subscription with start=latest handles all that comes after its creation, and nothing from before it."""

from tests.history.format import Function, Push
from tests.history.history_builder import HistoryBuilder, read
from tests.history.push.push_builder import NAME, PushBuilder


def latest() -> PushBuilder:
    """Records a, b and c came before the creation, d after it."""
    history = PushBuilder(is_latest=True, dead_letter_topic=None)
    history.history.sent("producer", ("d", 3))
    history.history.polled("tail", read((0, "a"), (1, "b"), (2, "c"), (3, "d")))
    return history


def test_nothing_is_wrong_when_only_later_records_are_handled() -> None:
    history = latest()
    history.handled((3, "d"))
    history.drained()
    assert history.found() == {}


def test_handled_before_start_when_it_was_acknowledged_before_the_creation() -> None:
    history = latest()
    history.handled((2, "c"), (3, "d"))
    history.drained()
    assert history.found() == {"handled-before-start": 1}


def test_unhandled_when_it_was_sent_after_the_creation() -> None:
    history = latest()
    history.drained()
    assert history.found() == {"unhandled": 1}


def _created_while_sending(*handled: int) -> HistoryBuilder:
    """Records x, y and z are sent while the subscription is made. Some are handled."""
    history = HistoryBuilder()
    sends = [history.begin(f"producer {value}", value) for value in "xyz"]
    creation = history.recorder.invoke("operator", Function.PUSH, group=NAME)
    history.recorder.ok(creation, [Push(topics=("orders",), is_latest=True)])
    for send in sends:
        history.recorder.ok(send)
    history.polled("reader", read(*enumerate("xyz")))
    push = PushBuilder.__new__(PushBuilder)
    push.history, push.recorder = history, history.recorder
    for offset in handled:
        push.handled((offset, "xyz"[offset]))
    push.drained()
    return history


def test_begin_may_be_anywhere_among_records_that_came_during_the_creation() -> None:
    for handled in ((), (2,), (1, 2), (0, 1, 2)):
        assert _created_while_sending(*handled).found() == {}, handled


def test_unhandled_when_it_lies_behind_a_handled_record() -> None:
    assert _created_while_sending(0, 2).found() == {"unhandled": 1}
