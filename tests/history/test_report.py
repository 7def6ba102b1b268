"""Lag, counts and witnesses."""

from tests.history.format import Function, Poll
from tests.history.history_builder import ORDERS, HistoryBuilder, abc, read, sent_and_read


def test_worst_lag_is_from_the_acknowledgement_to_the_begin_of_a_poll_without_the_record() -> None:
    history = HistoryBuilder()
    history.assigned("reader", started=[(ORDERS, 0)])  # at 10
    history.sent("producer", ("a", 0))  # at 20, 30
    history.polled("reader", Poll(ORDERS, ()))  # at 40, 50
    history.sent("producer", ("b", 1))  # at 60, 70
    history.polled("reader", read((0, "a")))  # at 80, 90
    history.polled("reader", read((1, "b")))
    report = history.check()
    assert report.is_clean
    assert [(lag.lag_ns, lag.offset, lag.line) for lag in report.worst_lag] == [(10, 0, 5)]
    assert [(lag.lag_ns, lag.offset, lag.line) for lag in report.worst_empty_lag] == [(10, 0, 5)]


def test_no_lag_when_the_record_was_acknowledged_after_the_poll_began() -> None:
    history = HistoryBuilder()
    history.assigned("reader", started=[(ORDERS, 0)])
    operation = history.recorder.invoke("reader", Function.POLL)
    history.sent("producer", ("a", 0))
    history.recorder.ok(operation, [Poll(ORDERS, ())])
    history.polled("reader", read((0, "a")))
    assert history.check().worst_lag == ()


def test_no_lag_when_the_record_was_truncated() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1))
    history.truncated(2)
    history.polled("reader", Poll(ORDERS, ()))
    assert history.check().worst_lag == ()


def test_a_poll_that_returned_records_first_and_nothing_then_is_not_empty() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1), ("c", 2))
    history.polled("reader", read((1, "b")), read())
    history.polled("reader", read((2, "c")))
    report = history.check()
    assert report.worst_lag[0].offset == 2
    assert report.worst_empty_lag == ()


def test_lag_grows_until_the_record_is_returned() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1), ("c", 2))
    known_at = history.now_ns
    for _ in range(3):
        history.polled("reader", Poll(ORDERS, ()))
    began_at = history.now_ns - 10
    history.polled("reader", read((1, "b")))
    history.polled("reader", read((2, "c")))
    report = history.check()
    assert report.worst_empty_lag[0].lag_ns == began_at - known_at
    assert report.worst_lag[0].lag_ns == began_at + 20 - known_at


def test_counts_tell_what_was_sent_and_read() -> None:
    history = abc()
    history.maybe_sent("producer", "d")
    history.begin("producer", "e")
    history.failed_to_send("producer", "f", "g")
    counts = history.check().counts
    assert (counts.sends_acknowledged, counts.sends_maybe, counts.sends_failed) == (3, 2, 2)
    assert (counts.polls, counts.records_read, counts.unseen, counts.operations) == (1, 3, 0, 7)


def test_witnesses_always_have_the_operations_that_are_wrong() -> None:
    history = abc()
    for index in range(20):
        history.polled(f"bystander-{index}", read((1, "b")))
    history.polled("skipper", read((0, "a")))
    history.polled("skipper", read((2, "c")))
    (example,) = history.check().examples
    assert len(example.witnesses) == 8
    assert [witness.process for witness in example.witnesses][-2:] == ["skipper", "skipper"]


def test_witnesses_are_those_who_sent_and_read_what_is_wrong() -> None:
    history = abc()
    history.polled("bystander", read((2, "c")))
    history.failed_to_send("producer", "d")
    history.polled("reader", read((3, "d")))
    (example,) = history.check().examples
    assert [(witness.line, witness.process) for witness in example.witnesses] == [(12, "producer"), (14, "reader")]
    assert example.witnesses[1].text == "poll ok: offsets 3 to 3 (1 records), of them 3: 'd'"
