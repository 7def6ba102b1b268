"""With order by key, no record is handed out while an earlier one of its key is unfinished."""

import pytest

from tests.history.format import Acknowledge, AckResult, Acquired, Function, Outcome, Reset, Verb
from tests.history.history_builder import ORDERS
from tests.history.queue_builder import GROUP, LOCK_MS, QueueBuilder, letter


def keyed(**settings: object) -> QueueBuilder:
    """Records a and c of key k, and b of key l."""
    history = QueueBuilder()
    history.made(is_by_key=True, **settings)  # type: ignore[arg-type]  # the settings of `made`
    history.sent_with_keys(("a", "k"), ("b", "l"), ("c", "k"))
    return history


def test_nothing_is_wrong_when_records_of_a_key_come_one_after_the_other() -> None:
    history = keyed()
    history.acquired("w1", "n1.0", (0, "a"), (1, "b"))
    history.accepted("w1", "n1.0")
    history.acquired("w2", "n2.0", (2, "c"))
    history.accepted("w2", "n2.0")
    history.drained()
    assert history.found() == {}


def test_key_overtaken_when_the_first_is_locked() -> None:
    history = keyed()
    history.acquired("w1", "n1.0", (0, "a"))
    history.acquired("w2", "n2.0", (1, "b"), (2, "c"))
    assert "'c' at offset 2 was handed out to w2 by group workers, while offset 0" in history.text("key-overtaken")


@pytest.mark.parametrize(
    ("verb", "result", "outcome"),
    [
        (Verb.RELEASE, AckResult.OK, Outcome.OK),
        (Verb.ACCEPT, AckResult.LOST, Outcome.OK),
        (Verb.ACCEPT, None, Outcome.FAIL),
    ],
)
def test_key_overtaken_when_the_first_waits_or_was_lost(verb: Verb, result: AckResult | None, outcome: Outcome) -> None:
    history = keyed()
    history.acquired("w1", "n1.0", (0, "a"))
    history.decided("w1", verb, "n1.0", result=result, outcome=outcome)
    history.acquired("w2", "n2.0", (2, "c"))
    assert history.found() == {"key-overtaken": 1}


def test_key_overtaken_when_the_first_was_never_handed_out() -> None:
    history = keyed()
    history.acquired("w1", "n1.0", (1, "b"))
    history.acquired("w2", "n2.0", (2, "c"))
    assert history.found() == {}  # the group may begin behind a
    history.acquired("w3", "n3.0", (0, "a"))
    assert history.found() == {"key-overtaken": 1}


@pytest.mark.parametrize("verb", [Verb.ACCEPT, Verb.REJECT])
def test_next_of_a_key_may_come_once_the_first_may_be_finished(verb: Verb) -> None:
    history = keyed()
    history.acquired("w1", "n1.0", (0, "a"))
    history.decided("w1", verb, "n1.0", outcome=Outcome.MAYBE)
    history.acquired("w2", "n2.0", (2, "c"))
    assert history.found() == {}


@pytest.mark.parametrize("is_repeated", [True, False])
def test_accept_that_is_lost_may_have_taken_effect_before_the_reset_that_its_repeat_met(is_repeated: bool) -> None:
    history = keyed()
    history.acquired("w1", "n1.0", (0, "a"))
    ask, told = (Acknowledge(ORDERS, "n1.0", Verb.ACCEPT, None, each, None) for each in (None, AckResult.LOST))
    recorder = history.recorder
    accept = recorder.invoke("w1", Function.ACKNOWLEDGE, [ask], group=GROUP)
    if not is_repeated:
        recorder.ok(accept, [told])
    history.acquired("w2", "n2.0", (2, "c"))
    reset = recorder.invoke("operator", Function.RESET, [Reset(ORDERS, None)], group=GROUP)
    if is_repeated:
        recorder.ok(accept, [told])
    recorder.ok(reset)
    assert history.found() == ({} if is_repeated else {"key-overtaken": 1})


def test_one_acquire_may_have_several_of_a_key() -> None:
    history = keyed()
    locks = (Acquired(ORDERS, "n1.0", 2, LOCK_MS, ((0, "a"),)), Acquired(ORDERS, "n1.1", 1, LOCK_MS, ((2, "c"),)))
    history.acquired_locks("w1", *locks)
    history.decided("w1", Verb.RELEASE, "n1.0")
    history.acquired("w2", "n2.0", (0, "a"), count=3)
    history.accepted("w2", "n2.0")
    history.acquired("w2", "n3.0", (2, "c"))  # it stood behind a, so its delivery did not count
    assert history.found() == {}


@pytest.mark.parametrize("is_in_time", [True, False])
def test_first_leaves_the_order_when_its_last_delivery_has_ended(is_in_time: bool) -> None:
    history = keyed(deliveries_max=1, dead_letter_topic="orders.dead")
    history.acquired("w1", "n1.0", (0, "a"))
    if is_in_time:
        history.passes(LOCK_MS)
    history.acquired("w2", "n2.0", (2, "c"))
    history.found_dead(letter(key="k", deliveries=1))
    assert history.found() == ({} if is_in_time else {"key-overtaken": 1})
