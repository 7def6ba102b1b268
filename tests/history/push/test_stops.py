"""After a pause or a deletion no invocation begins, once the locks of the deliveries that ran have ended."""

from tests.history.push.push_builder import LOCK_MS, PushBuilder


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
