"""In the end each record is accepted, or once in the dead-letter topic as it was."""

from dataclasses import replace

import pytest

from tests.history.format import DeadLetter, Function, Outcome, Reset, Verb
from tests.history.history_builder import ORDERS, OTHER
from tests.history.queue_builder import GROUP, LOCK_MS, QueueBuilder, letter


def ended(*, deliveries: int = 2) -> QueueBuilder:
    """Record b is accepted. Record a, of key k, has had so many of its two deliveries."""
    history = QueueBuilder()
    history.made(deliveries_max=2, dead_letter_topic="orders.dead")
    history.sent_with_keys(("a", "k"), ("b", None))
    history.acquired("w1", "n0.0", (1, "b"))
    history.accepted("w1", "n0.0")
    for count in range(1, deliveries + 1):
        history.acquired("w1", f"n{count}.0", (0, "a"), count=count)
        history.passes(LOCK_MS)
    return history


def rejected(reason: str = "") -> QueueBuilder:
    history = ended(deliveries=1)
    history.acquired("w1", "n9.0", (0, "a"), count=2)
    history.decided("w1", Verb.REJECT, "n9.0", detail=reason or None)
    return history


GOOD = letter(key="k")


def test_nothing_is_wrong_when_a_record_is_dead_after_its_last_delivery() -> None:
    history = ended()
    for _ in range(2):  # each reader finds it
        history.found_dead(GOOD)
    history.drained()
    assert history.found() == {}


def test_rejected_record_is_a_dead_letter_with_its_reason() -> None:
    history = rejected("no such customer")
    history.found_dead(replace(GOOD, reason="no such customer"))
    history.drained()
    assert history.found() == {}


def test_reject_without_a_reason_has_the_services_own() -> None:
    history = rejected()
    history.found_dead(replace(GOOD, reason="rejected"))
    assert history.found() == {}


def test_unfinished_when_nobody_was_given_the_record() -> None:
    history = ended(deliveries=0)
    history.drained()
    assert history.text("unfinished") == "'a' at offset 0 is unfinished in group workers: it was never handed out"


def test_unfinished_when_it_does_not_come_again_after_its_lock() -> None:
    history = ended(deliveries=1)
    history.found_dead()
    history.drained()
    assert history.text("unfinished").endswith("it was handed out 1 times, last to w1 as delivery 1")


def test_unfinished_when_its_last_delivery_leaves_no_dead_letter() -> None:
    history = ended()
    history.drained()
    assert history.found() == {}  # nobody has looked into the dead-letter topic
    history.found_dead()
    assert history.found() == {"unfinished": 1}


def test_unfinished_when_a_rejected_record_is_no_dead_letter() -> None:
    history = rejected()
    history.found_dead()
    history.drained()
    assert history.text("unfinished").endswith("it was rejected, and is no dead letter in orders.dead")


def test_accept_without_an_answer_may_have_finished_the_record() -> None:
    history = ended(deliveries=1)
    history.decided("w1", Verb.ACCEPT, "n1.0", outcome=Outcome.MAYBE)
    history.drained()
    assert history.found() == {}


def test_truncated_record_need_not_be_finished() -> None:
    history = ended(deliveries=1)
    history.truncated(1)
    history.drained()
    assert history.found() == {}


def test_reset_may_skip_records() -> None:
    history = ended(deliveries=1)
    history.recorder.done("operator", Function.RESET, [Reset(ORDERS, None)], group=GROUP)
    history.drained()
    assert history.found() == {}


def test_record_sent_after_the_drain_need_not_be_finished() -> None:
    history = ended()
    history.drained()
    history.sent("producer", ("late", 2))
    history.found_dead(GOOD)
    assert history.found(allow_unseen=True) == {}


def test_letter_may_have_the_reason_of_an_earlier_release() -> None:
    history = ended()
    history.decided("w1", Verb.RELEASE, "n1.0", outcome=Outcome.MAYBE, detail="because")
    history.found_dead(replace(GOOD, reason="deliveries, earlier: because"))
    assert history.found() == {}


def test_dead_letter_twice() -> None:
    history = ended()
    history.found_dead(GOOD, replace(GOOD, offset=1))
    assert "'a' at offset 0 is a dead letter of group workers twice" in history.text("dead-letter-twice")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (replace(GOOD, value="x"), "offset 0 holds 'a'"),
        (replace(GOOD, key="l"), "with key 'l' in place of 'k'"),
        (replace(GOOD, deliveries=1), "after 1 of 2 deliveries for the reason 'deliveries'"),
        (replace(GOOD, reason="rejected"), "for the reason 'rejected'"),
        (replace(GOOD, group="strangers"), "is not where that group's dead letters"),
        (replace(GOOD, origin=OTHER), "offset 0 holds None"),
    ],
)
def test_wrong_dead_letter_when_content_or_headers_are_not_the_records(wrong: DeadLetter, why: str) -> None:
    history = ended()
    history.found_dead(wrong)
    [example] = [each for each in history.check().examples if each.anomaly.kind == "wrong-dead-letter"][:1]
    assert why in example.anomaly.text


def test_wrong_dead_letter_when_it_stands_in_another_topic() -> None:
    history = ended()
    history.found_dead(GOOD, where=("elsewhere", 0))
    assert history.found() == {"wrong-dead-letter": 1}


def test_wrong_dead_letter_when_the_record_was_accepted() -> None:
    history = ended(deliveries=1)
    history.acquired("w1", "n9.0", (0, "a"), count=2)
    history.accepted("w1", "n9.0")
    history.found_dead(GOOD)
    assert history.text("wrong-dead-letter").endswith("and was accepted")


def test_finished_again_when_a_dead_letter_is_handed_out() -> None:
    history = ended(deliveries=1)
    history.found_dead(GOOD)
    history.acquired("w2", "n9.0", (0, "a"), count=2)
    assert "after it was read as a dead letter" in history.text("finished-again")
