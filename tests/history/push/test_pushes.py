"""A subscription's target handles each record, in order for the first time, or the record is a dead letter once.

A subscription with start=latest handles all that comes after its creation, and nothing from before it.

A topic that a subscription copies to has each record once, in order, and no others.

After a pause or a deletion no invocation begins, once the locks of the deliveries that ran have ended.
"""

from dataclasses import replace
from typing import Any

import pytest

from tests.history.format import DeadLetter, Function, Handling, Push, Value
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc, read
from tests.history.push.figures import PushFigures
from tests.history.push.push_builder import LOCK_MS, MIRROR, NAME, POISON, PushBuilder


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


def mirror(*copies: tuple[int, Value], **settings: Any) -> PushBuilder:
    """A drained subscription, and the copies that two readers found."""
    history = PushBuilder(copies_to=MIRROR[0], dead_letter_topic=None, **settings)
    history.drained()
    history.found_copies(*copies)
    history.found_copies(*copies)
    return history


def test_nothing_is_wrong_when_each_record_was_copied_once() -> None:
    history = mirror((0, "a"), (1, "b"), (2, "c"))
    assert history.found() == {}
    assert history.history.check().counts.copies == 3


def test_unhandled_when_a_record_was_not_copied() -> None:
    assert mirror((0, "a"), (1, "c")).found() == {"unhandled": 1}


def test_copied_twice() -> None:
    assert mirror((0, "a"), (1, "b"), (2, "b"), (3, "c")).found() == {"copied-twice": 1}


def test_handled_late_when_copies_are_out_of_order() -> None:
    assert mirror((0, "b"), (1, "a"), (2, "c")).found() == {"handled-late": 1}
    assert mirror((0, "b"), (1, "a"), (2, "c"), is_ordered=False).found() == {}


def test_wrong_copy_when_no_record_of_the_partition_has_its_value() -> None:
    assert mirror((0, "a"), (1, "b"), (2, "c"), (3, "x")).found() == {"wrong-copy": 1}


def test_wrong_copy_when_it_is_of_another_partition() -> None:
    history = mirror((0, "a"), (1, "b"), (2, "c"))
    history.history.sent("producer", ("o", 0), where=OTHER)
    history.found_copies((0, "a"), where=(MIRROR[0], 1))
    assert history.history.found(allow_unseen=True) == {"wrong-copy": 1}


def test_wrong_filter_when_a_copy_is_excluded() -> None:
    assert mirror((0, "a"), ending="a").found() == {}
    assert mirror((0, "a"), (1, "b"), ending="a").found() == {"wrong-filter": 1}


def stopped() -> PushBuilder:
    """A subscription that was stopped after its first record."""
    history = PushBuilder(lock_ms=LOCK_MS)
    history.handled((0, "a"))
    history.stopped()
    return history


def test_delivery_that_had_begun_may_go_on_until_its_lock_ends() -> None:
    history = stopped()
    history.passes(0.5 * LOCK_MS)
    history.handled((1, "b"))
    assert history.found() == {}


def test_handled_after_stop_when_an_invocation_begins_later() -> None:
    history = stopped()
    history.passes(2 * LOCK_MS)
    history.handled((1, "b"))
    [example] = history.history.check().examples
    assert example.anomaly.kind == "handled-after-stop"
    assert "0.0 s after it was stopped" in example.anomaly.text


def test_handled_after_stop_whatever_became_of_the_invocation() -> None:
    for invoke in (PushBuilder.failed, PushBuilder.begun):
        history = stopped()
        history.passes(2 * LOCK_MS)
        invoke(history, (1, "b"))
        assert history.found() == {"handled-after-stop": 1}


def test_resumed_subscription_goes_on() -> None:
    history = stopped()
    history.passes(2 * LOCK_MS)
    history.resumed()
    history.handled((1, "b"))
    assert history.found() == {}


def test_second_stop_counts_and_a_resumption_before_it_does_not() -> None:
    history = stopped()
    history.resumed()
    history.stopped()
    history.passes(0.5 * LOCK_MS)
    history.handled((1, "b"))
    assert history.found() == {}
    history.passes(LOCK_MS)
    history.handled((2, "c"))
    assert history.found() == {"handled-after-stop": 1}


def test_stop_that_is_not_known_to_be_done_stops_nothing() -> None:
    history = PushBuilder(lock_ms=LOCK_MS)
    history.recorder.maybe(history.recorder.invoke("operator", "stop", group="pack"))  # type: ignore[arg-type]
    history.passes(2 * LOCK_MS)
    history.handled((0, "a"))
    assert history.found() == {}
