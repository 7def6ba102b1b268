"""A record has one lock at a time, comes again only unfinished, and each delivery counts."""

import pytest

from tests.history.format import AckResult, Acquired, Function, Nonce, Outcome, Reset, Verb
from tests.history.history_builder import ORDERS
from tests.history.queue_builder import GROUP, LOCK_MS, QueueBuilder


def shared(*values: str, **settings: object) -> QueueBuilder:
    """A group, and these records from offset 0 on."""
    history = QueueBuilder()
    history.made(**settings)  # type: ignore[arg-type]  # the settings of `made`
    history.sent_with_keys(*((value, None) for value in values))
    return history


def retried(history: QueueBuilder) -> None:
    """Record a is handed out to w1, which dies, and after the lock to w2, which accepts it."""
    history.acquired("w1", "n1.0", (0, "a"))
    history.passes(LOCK_MS)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    history.accepted("w2", "n2.0")


def test_nothing_is_wrong_when_a_record_comes_again_after_its_lock_and_is_accepted() -> None:
    history = shared("a")
    retried(history)
    history.drained()
    assert history.found() == {}


@pytest.mark.parametrize(("verb", "result"), [("accept", "ok"), ("accept", "done"), ("reject", "ok")])
def test_finished_again_when_an_acquire_begins_after_the_answer(verb: str, result: str) -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.decided("w1", Verb(verb), "n1.0", result=AckResult(result))
    history.passes(LOCK_MS)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert history.text("finished-again").startswith("'a' at offset 0 was handed out to w2")


@pytest.mark.parametrize(
    ("verb", "result", "outcome"),
    [
        (Verb.ACCEPT, AckResult.LOST, Outcome.OK),
        (Verb.ACCEPT, None, Outcome.MAYBE),
        (Verb.ACCEPT, None, Outcome.FAIL),
        (Verb.RELEASE, AckResult.OK, Outcome.OK),
    ],
)
def test_record_may_come_again_unless_it_was_told_to_be_finished(
    verb: Verb, result: AckResult | None, outcome: Outcome
) -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.decided("w1", verb, "n1.0", result=result, outcome=outcome)
    history.passes(LOCK_MS)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert history.found() == {}


def test_acquire_that_began_before_the_accept_was_answered_may_have_come_first() -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.passes(LOCK_MS)
    other = history.recorder.invoke("w2", Function.ACQUIRE, group=GROUP)
    history.accepted("w1", "n1.0")
    history.recorder.ok(other, [Acquired(ORDERS, "n2.0", 2, LOCK_MS, ((0, "a"),))])
    assert history.found() == {}


def test_reset_hands_out_accepted_records_again() -> None:
    history = shared("a")
    retried(history)
    operation = history.recorder.invoke("operator", Function.RESET, [Reset(ORDERS, 0)], group=GROUP)
    history.recorder.ok(operation)
    history.acquired("w3", "n3.0", (0, "a"))
    assert history.found() == {}


def test_accept_of_some_offsets_finishes_no_others() -> None:
    history = shared("a", "b")
    history.acquired("w1", "n1.0", (0, "a"), (1, "b"))
    history.accepted("w1", "n1.0", 0)
    history.passes(LOCK_MS)
    history.acquired("w2", "n2.0", (1, "b"), count=2)
    assert history.found() == {}


def test_two_locks_when_another_consumer_gets_the_record_before_the_lock_ends() -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert history.text("two-locks") == "'a' at offset 0 was held by w1 and w2 at once in group workers"


def test_two_locks_when_a_renewed_lock_is_given_away() -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.passes(0.5)
    history.decided("w1", Verb.RENEW, "n1.0", detail=LOCK_MS)
    history.passes(0.8)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert history.found() == {"two-locks": 1}


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.MAYBE])
def test_renewal_that_was_not_confirmed_extends_no_hold(outcome: Outcome) -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.passes(0.5)
    history.decided("w1", Verb.RENEW, "n1.0", detail=LOCK_MS, outcome=outcome)
    history.passes(0.8)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert history.found() == {}


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.MAYBE])
def test_released_record_may_come_at_once(outcome: Outcome) -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.decided("w1", Verb.RELEASE, "n1.0", outcome=outcome)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert history.found() == {}


def test_clocks_of_the_service_may_differ_by_the_skew_that_is_allowed() -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.passes(0.8)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert history.found(clock_skew_ns=500_000) == {}
    assert history.found(clock_skew_ns=100_000) == {"two-locks": 1}


def test_repeat_of_an_acquire_has_the_same_lock() -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.acquired("w1", "n1.0", (0, "a"))
    assert history.found() == {}


def test_delivery_count_when_it_does_not_rise() -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"), count=2)
    history.passes(LOCK_MS)
    history.acquired("w2", "n2.0", (0, "a"), count=2)
    assert "as delivery 2, after w1 had delivery 2" in history.text("delivery-count")


def test_delivery_that_was_given_back_does_not_count() -> None:
    history = shared("a")
    history.acquired("w1", "n1.0", (0, "a"))
    history.decided("w1", Verb.GIVE_BACK, "n1.0")
    history.acquired("w2", "n2.0", (0, "a"))
    assert history.found() == {}
    history.passes(LOCK_MS)
    history.acquired("w3", "n3.0", (0, "a"))
    assert history.found() == {"delivery-count": 1}


def test_delivery_count_when_it_passes_the_most() -> None:
    history = shared("a", deliveries_max=2, dead_letter_topic="orders.dead")
    history.acquired("w1", "n1.0", (0, "a"), count=3)
    assert history.text("delivery-count").endswith("as delivery 3 of 2")


def test_wrong_filter_when_an_excluded_record_is_handed_out() -> None:
    history = shared("a7", "b8", ending="7")
    history.acquired("w1", "n1.0", (0, "a7"))
    history.accepted("w1", "n1.0")
    history.drained()
    assert history.found() == {}
    history.acquired("w2", "n2.0", (1, "b8"))
    assert "'b8' at offset 1" in history.text("wrong-filter")


def test_inconsistent_offsets_when_an_acquire_shows_another_record() -> None:
    history = shared("a", "b")
    history.acquired("w1", "n1.0", (0, "b"))
    assert "inconsistent-offsets" in history.found()


def test_try_without_an_answer_gives_back_nothing_that_another_try_was_told() -> None:
    history = shared("a")
    operation = history.recorder.invoke("w1", Function.ACQUIRE, [Nonce("n1")], group=GROUP)
    history.recorder.maybe(operation)
    history.acquired("w1", "n1.0", (0, "a"))
    history.acquired("w2", "n2.0", (0, "a"))
    assert history.found() == {"two-locks": 1, "delivery-count": 1}
