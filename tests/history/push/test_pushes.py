"""A subscription's target handles each record, in order for the first time, or the record is a dead letter once."""

from dataclasses import replace

import pytest

from tests.history.format import DeadLetter, Function, Handling, Push
from tests.history.history_builder import ORDERS, OTHER, abc
from tests.history.push.figures import PushFigures
from tests.history.push.push_builder import NAME, POISON, PushBuilder


def good(*, is_ordered: bool = True) -> PushBuilder:
    """Record b is poison. Record a was tried again after its answer was lost."""
    history = PushBuilder(is_ordered=is_ordered, is_complete=True)
    history.handled((0, "a"))
    history.disturbed()
    history.handled((0, "a"))
    history.failed((1, "b"), (2, "c"))
    history.found_dead(POISON)
    history.handled((2, "c"))
    history.drained()
    return history


@pytest.mark.parametrize("is_ordered", [True, False])
def test_nothing_is_wrong_when_each_record_is_handled_or_dead(is_ordered: bool) -> None:
    history = good(is_ordered=is_ordered)
    assert history.found() == {}
    counts = history.history.check().counts
    assert (counts.handled, counts.dead_letters) == (3, 1)
    figures = history.history.check().subscriptions
    assert figures == {NAME: PushFigures(records=2, buried=1, repeats=1, failures=1)}


@pytest.mark.parametrize("is_ordered", [True, False])
def test_unhandled_when_the_target_never_got_it(is_ordered: bool) -> None:
    history = PushBuilder(is_ordered=is_ordered)
    history.handled((0, "a"), (1, "b"))
    history.drained()
    assert history.found() == {}  # nobody has looked into the dead-letter topic
    history.found_dead()
    assert history.found() == {"unhandled": 1}


@pytest.mark.parametrize("is_ordered", [True, False])
def test_unhandled_when_the_target_failed_with_it_or_did_not_answer(is_ordered: bool) -> None:
    history = PushBuilder(is_ordered=is_ordered)
    history.handled((0, "a"))
    history.failed((1, "b"))
    history.begun((2, "c"))
    history.found_dead()
    history.drained()
    assert history.found() == {"unhandled": 2}


def test_unhandled_when_the_target_named_it_and_it_is_not_dead() -> None:
    history = PushBuilder(is_ordered=False)
    history.handled((0, "a"), (1, "b"), (2, "c"), refused=(1,))
    history.found_dead()
    history.drained()
    assert history.found() == {"unhandled": 1}


def test_record_that_came_before_the_answer_of_the_creation_is_handled() -> None:
    history = abc()
    creation = history.recorder.invoke("operator", Function.PUSH, [Push(topics=("orders",))], group=NAME)
    history.recorder.done("target", Function.HANDLE, [Handling(ORDERS, ((1, "b"), (0, "a")))], group=NAME)
    history.recorder.ok(creation)
    assert history.found() == {"handled-late": 1}


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


def test_inconsistent_offsets_when_the_target_got_another_record() -> None:
    history = PushBuilder()
    history.handled((0, "x"))
    assert history.found()["inconsistent-offsets"] == 1


@pytest.mark.parametrize("is_ordered", [True, False])
def test_dead_letter_twice(is_ordered: bool) -> None:
    history = good(is_ordered=is_ordered)
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


def test_wrong_dead_letter_when_its_target_never_failed_with_it() -> None:
    history = good()
    history.found_dead(replace(POISON, value="c", origin_offset=2))
    assert history.found() == {}  # an invocation with records b and c has failed
    history.found_dead(replace(POISON, value="a", origin_offset=0, offset=1))
    assert history.found() == {"wrong-dead-letter": 1}


@pytest.mark.parametrize("how", ["named", "unanswered"])
def test_dead_letter_follows_an_answer_that_names_it_or_none(how: str) -> None:
    history = PushBuilder(is_complete=True)
    if how == "named":
        history.handled((0, "a"), (1, "b"), refused=(1,))
    else:
        history.begun((0, "a"), (1, "b"))
    history.found_dead(POISON)
    assert history.found() == {}
