"""A delayed record comes once, not before its time, and never once its writer was told that it is cancelled."""

import pytest

from tests.history.format import Function, MicroOp, Outcome, Schedule, Send
from tests.history.history_builder import ORDERS, OTHER, read
from tests.history.queue_builder import MS, QueueBuilder

DUE_NS = 5 * MS


def delayed(*records: tuple[str, str], outcome: Outcome = Outcome.OK) -> QueueBuilder:
    """Delayed records, pairs of value and id, in one operation. It is their time now."""
    history = QueueBuilder()
    history.scheduled("writer", *records, due_ns=DUE_NS, outcome=outcome)
    history.passes(6)
    return history


def test_nothing_is_wrong_when_a_record_comes_after_its_time() -> None:
    history = delayed(("a", "1"))
    history.polled("reader", read((0, "a")))
    report = history.check()
    assert report.is_clean
    assert report.lateness.records == 1
    assert report.lateness.worst_ms == pytest.approx(1.0, abs=0.001)


def test_lateness_has_percentiles_of_all_that_came() -> None:
    history = QueueBuilder()
    for number in range(100):
        history.scheduled("writer", (f"v{number}", f"{number:03}"), due_ns=10 * MS)
    for number in range(100):
        history.now_ns = (10 + number) * MS
        history.polled("reader", read((number, f"v{number}")))
    late = history.check().lateness
    assert (late.records, round(late.p50_ms), round(late.p99_ms), round(late.worst_ms)) == (100, 50, 99, 99)


def test_early_delivery_when_a_poll_ends_before_the_time() -> None:
    history = QueueBuilder()
    history.scheduled("writer", ("a", "1"), due_ns=DUE_NS)
    history.passes(4)
    history.polled("reader", read((0, "a")))
    assert "the delayed record 'a' at offset 0 of writer was read 1.000 ms" in history.text("early-delivery")[:99]
    assert history.found(clock_skew_ns=2 * MS) == {}


def test_undelivered_when_it_never_comes() -> None:
    history = delayed(("a", "1"))
    history.polled("reader", read())
    assert history.text("undelivered") == "the delayed record 'a' of writer was due, and never came"
    assert history.found(allow_unseen=True) == {}


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.MAYBE])
def test_record_that_nobody_promised_may_be_missing(outcome: Outcome) -> None:
    history = delayed(("a", "1"), outcome=outcome)
    history.polled("reader", read())
    assert history.found() == {}


def test_record_may_be_missing_when_nobody_has_looked_after_its_time() -> None:
    history = QueueBuilder()
    history.scheduled("writer", ("a", "1"), due_ns=DUE_NS)
    history.polled("reader", read())
    history.passes(6)
    history.polled("reader", read(where=OTHER))
    assert history.found() == {}


def test_aborted_read_when_a_refused_record_comes() -> None:
    history = delayed(("a", "1"), outcome=Outcome.FAIL)
    history.polled("reader", read((0, "a")))
    assert history.found() == {"aborted-read": 1}


def test_duplicate_when_it_comes_twice_however_often_it_was_sent() -> None:
    history = delayed(("a", "1"), outcome=Outcome.MAYBE)
    history.scheduled("writer", ("a", "1"), due_ns=DUE_NS)
    history.polled("reader", read((0, "a"), (1, "a")))
    assert history.found(allow_retry_duplicates=True) == {"duplicate": 1}


def test_cancelled_delivery_when_its_writer_was_told_so() -> None:
    history = delayed(("a", "1"))
    history.cancelled("1")
    history.polled("reader", read())
    assert history.found() == {}
    history.polled("reader", read((0, "a")))
    assert history.text("cancelled-delivery").endswith("was cancelled, and came")


@pytest.mark.parametrize("comes", [True, False])
def test_cancel_without_an_answer_may_have_come_first_or_not(comes: bool) -> None:
    history = delayed(("a", "1"))
    history.cancelled("1", outcome=Outcome.MAYBE)
    history.polled("reader", read((0, "a")) if comes else read())
    assert history.found() == {}


def test_undelivered_when_the_cancel_was_refused() -> None:
    history = delayed(("a", "1"))
    history.cancelled("1", outcome=Outcome.FAIL)
    history.polled("reader", read())
    assert history.found() == {"undelivered": 1}


def test_delayed_order_within_an_operation() -> None:
    history = delayed(("a", "1"), ("b", "1"))
    history.polled("reader", read((0, "b"), (1, "a")))
    assert "'b' at offset 0 of writer stands before 'a'" in history.text("delayed-order")


@pytest.mark.parametrize(("first", "second"), [("1", "2"), ("2", "1")])
def test_delayed_order_of_two_operations_is_that_of_their_ids(first: str, second: str) -> None:
    history = QueueBuilder()
    history.scheduled("writer", ("a", first), due_ns=DUE_NS)
    history.scheduled("writer", ("b", second), due_ns=DUE_NS)
    history.passes(6)
    history.polled("reader", read((0, "b"), (1, "a")))
    # With falling ids the second operation is a late repeat of an earlier record, which need not come first.
    assert history.found() == ({"delayed-order": 1} if first < second else {})


def test_order_is_free_where_the_first_was_not_acknowledged_in_time_or_is_anothers() -> None:
    history = delayed(("a", "1"), outcome=Outcome.MAYBE)
    history.scheduled("other", ("c", "0"), due_ns=DUE_NS)
    history.scheduled("writer", ("b", "2"), due_ns=DUE_NS)
    history.polled("reader", read((0, "b"), (1, "a"), (2, "c")))
    assert history.found() == {}


def test_order_is_free_where_the_first_was_sent_after_its_time() -> None:
    history = QueueBuilder()
    history.passes(6)
    history.scheduled("writer", ("a", "1"), due_ns=DUE_NS)
    history.scheduled("writer", ("b", "2"), due_ns=DUE_NS)
    history.polled("reader", read((0, "b"), (1, "a")))
    assert history.found() == {}


def committed(history: QueueBuilder, outcome: str) -> None:
    """A transaction of a record and a delayed one."""
    ops: list[MicroOp] = [Send(OTHER, "now"), Schedule(ORDERS, "later", DUE_NS, "1")]
    getattr(history.recorder, outcome)(history.recorder.invoke("mover", Function.TXN, ops))
    history.passes(6)


@pytest.mark.parametrize("is_read", [True, False])
def test_undelivered_of_a_transaction_without_an_answer_that_was_committed(is_read: bool) -> None:
    history = QueueBuilder()
    committed(history, "maybe")
    history.polled("reader", read(*([(0, "now")] if is_read else []), where=OTHER), read())
    assert history.found() == ({"undelivered": 1} if is_read else {})


def test_aborted_read_of_a_transaction_that_failed() -> None:
    history = QueueBuilder()
    committed(history, "fail")
    history.polled("reader", read(where=OTHER), read((0, "later")))
    assert history.found() == {"aborted-read": 1}
