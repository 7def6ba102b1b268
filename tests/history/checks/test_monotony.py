"""Polls and sends out of order in histories made by hand, each with the nearest right one."""

from tests.history.format import Send
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc, read, sent_and_read


def test_nonmonotonic_poll_when_a_process_reads_a_record_again() -> None:
    history = abc()
    history.polled("reader", read((2, "c")))
    assert history.found() == {"nonmonotonic-poll": 1}


def test_nonmonotonic_poll_when_it_starts_below_the_position_sought() -> None:
    history = abc()
    history.sought("reader", 1)
    history.polled("reader", read((0, "a"), (1, "b")))
    assert history.found() == {"nonmonotonic-poll": 1}


def test_no_nonmonotonic_poll_when_another_process_reads_it() -> None:
    history = abc()
    history.polled("other", read((2, "c")))
    assert history.found() == {}


def test_no_nonmonotonic_poll_when_the_poll_before_failed() -> None:
    history = abc()
    history.polled("worker", read((0, "a")))
    history.failed_to_poll("worker", read((1, "b")))
    history.polled("worker", read((1, "b"), (2, "c")))
    assert history.found() == {}


def test_int_nonmonotonic_poll_when_a_poll_repeats_a_record() -> None:
    history = abc()
    history.polled("other", read((0, "a"), (1, "b"), (1, "b"), (2, "c")))
    assert history.found() == {"int-nonmonotonic-poll": 1}


def test_int_nonmonotonic_poll_when_a_poll_goes_back() -> None:
    history = abc()
    history.polled("other", read((1, "b"), (0, "a")))
    assert history.found() == {"int-nonmonotonic-poll": 1}


def test_nonmonotonic_send_when_a_later_send_has_a_lower_offset() -> None:
    assert sent_and_read(("a", 1), ("b", 0)).found() == {"nonmonotonic-send": 1}


def test_nonmonotonic_send_when_two_sends_were_given_one_offset() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("a", 0))
    history.sent("producer", ("b", 0))
    history.polled("reader", read((0, "a")))
    assert history.found() == {"inconsistent-offsets": 1, "lost-write": 1, "nonmonotonic-send": 1}


def test_int_nonmonotonic_send_when_one_operation_was_given_an_offset_twice() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("a", 0), ("b", 0))
    history.polled("reader", read((0, "a")))
    assert history.found() == {"inconsistent-offsets": 1, "lost-write": 1, "int-nonmonotonic-send": 1}


def test_no_nonmonotonic_send_when_the_send_that_is_read_too_early_failed() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("b", 1))
    history.failed_to_send("producer", "a")
    history.polled("reader", read((0, "a"), (1, "b")))
    assert history.found() == {"aborted-read": 1}


def test_no_nonmonotonic_send_when_a_maybe_left_copies_on_both_sides() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("b", 1))
    history.maybe_sent("producer", "a")
    history.polled("reader", read((0, "a"), (1, "b"), (2, "a")))
    assert history.found() == {"duplicate": 1}


def test_no_nonmonotonic_send_when_another_process_sent_it() -> None:
    history = HistoryBuilder()
    history.sent("one", ("a", 1))
    history.sent("two", ("b", 0))
    history.polled("reader", read((0, "b"), (1, "a")))
    assert history.found() == {}


def test_nonmonotonic_send_goes_by_the_order_of_invokes_when_sends_overlap() -> None:
    history = HistoryBuilder()
    first, second = history.begin("producer", "a"), history.begin("producer", "b")
    history.recorder.ok(second, [Send(ORDERS, "b", 1)])
    history.recorder.ok(first, [Send(ORDERS, "a", 0)])
    history.polled("reader", read((0, "a"), (1, "b")))
    assert history.found() == {}
    history = HistoryBuilder()
    first, second = history.begin("producer", "a"), history.begin("producer", "b")
    history.recorder.ok(second, [Send(ORDERS, "b", 0)])
    history.recorder.ok(first, [Send(ORDERS, "a", 1)])
    history.polled("reader", read((0, "b"), (1, "a")))
    assert history.found() == {"nonmonotonic-send": 1}


def test_nonmonotonic_send_when_a_maybe_is_read_before_what_was_acknowledged_earlier() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("a", 1))
    history.maybe_sent("producer", "b")
    history.polled("reader", read((0, "b"), (1, "a")))
    assert history.found() == {"nonmonotonic-send": 1}


def test_no_nonmonotonic_send_when_a_maybe_takes_effect_late() -> None:
    history = HistoryBuilder()
    history.maybe_sent("producer", "a")
    history.sent("producer", ("b", 0))
    history.polled("reader", read((0, "b"), (1, "a")))
    assert history.found() == {}


def test_no_nonmonotonic_send_when_a_repeat_is_answered_with_its_first_offset() -> None:
    history = HistoryBuilder()
    history.maybe_sent("producer", "a")
    history.sent("producer", ("b", 1))
    history.sent("producer", ("a", 0))
    history.polled("reader", read((0, "a"), (1, "b")))
    assert history.found() == {}


def test_int_nonmonotonic_send_when_one_operation_is_acknowledged_out_of_order() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("a", 1), ("b", 0))
    history.polled("reader", read((0, "b"), (1, "a")))
    assert history.found() == {"int-nonmonotonic-send": 1}


def test_int_nonmonotonic_send_when_a_maybe_is_read_out_of_order() -> None:
    history = HistoryBuilder()
    history.maybe_sent("producer", "a", "b")
    history.polled("reader", read((0, "b"), (1, "a")))
    assert history.found() == {"int-nonmonotonic-send": 1}


def test_no_int_nonmonotonic_send_when_the_sends_are_to_two_partitions() -> None:
    history = HistoryBuilder()
    history.committed("worker", Send(ORDERS, "a", 5), Send(OTHER, "b", 3))
    history.polled("reader", read((5, "a")), read((3, "b"), where=OTHER))
    assert history.found() == {}
