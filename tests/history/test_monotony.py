"""Polls and sends out of order in histories made by hand, each beside the nearest right one."""

from tests.history.format import Send
from tests.history.story import ORDERS, OTHER, Story, abc, read, told


def test_nonmonotonic_poll_when_a_process_reads_a_record_again() -> None:
    story = abc()
    story.polled("reader", read((2, "c")))
    assert story.found() == {"nonmonotonic-poll": 1}


def test_nonmonotonic_poll_when_it_starts_below_the_position_sought() -> None:
    story = abc()
    story.sought("reader", 1)
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {"nonmonotonic-poll": 1}


def test_no_nonmonotonic_poll_when_another_process_reads_it() -> None:
    story = abc()
    story.polled("other", read((2, "c")))
    assert story.found() == {}


def test_no_nonmonotonic_poll_when_the_poll_before_failed() -> None:
    story = abc()
    story.polled("worker", read((0, "a")))
    story.failed_to_poll("worker", read((1, "b")))
    story.polled("worker", read((1, "b"), (2, "c")))
    assert story.found() == {}


def test_int_nonmonotonic_poll_when_a_poll_repeats_a_record() -> None:
    story = abc()
    story.polled("other", read((0, "a"), (1, "b"), (1, "b"), (2, "c")))
    assert story.found() == {"int-nonmonotonic-poll": 1}


def test_int_nonmonotonic_poll_when_a_poll_goes_back() -> None:
    story = abc()
    story.polled("other", read((1, "b"), (0, "a")))
    assert story.found() == {"int-nonmonotonic-poll": 1}


def test_nonmonotonic_send_when_a_later_send_has_a_lower_offset() -> None:
    assert told(("a", 1), ("b", 0)).found() == {"nonmonotonic-send": 1}


def test_nonmonotonic_send_when_two_sends_were_given_one_offset() -> None:
    story = Story()
    story.sent("producer", ("a", 0))
    story.sent("producer", ("b", 0))
    story.polled("reader", read((0, "a")))
    assert story.found() == {"inconsistent-offsets": 1, "lost-write": 1, "nonmonotonic-send": 1}


def test_int_nonmonotonic_send_when_one_operation_was_given_an_offset_twice() -> None:
    story = Story()
    story.sent("producer", ("a", 0), ("b", 0))
    story.polled("reader", read((0, "a")))
    assert story.found() == {"inconsistent-offsets": 1, "lost-write": 1, "int-nonmonotonic-send": 1}


def test_no_nonmonotonic_send_when_the_send_that_is_read_too_early_failed() -> None:
    story = Story()
    story.sent("producer", ("b", 1))
    story.failed_to_send("producer", "a")
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {"aborted-read": 1}


def test_no_nonmonotonic_send_when_a_maybe_left_copies_on_both_sides() -> None:
    story = Story()
    story.sent("producer", ("b", 1))
    story.maybe_sent("producer", "a")
    story.polled("reader", read((0, "a"), (1, "b"), (2, "a")))
    assert story.found() == {"duplicate": 1}


def test_no_nonmonotonic_send_when_another_process_sent_it() -> None:
    story = Story()
    story.sent("one", ("a", 1))
    story.sent("two", ("b", 0))
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {}


def test_nonmonotonic_send_goes_by_the_order_of_invokes_when_sends_overlap() -> None:
    story = Story()
    first, second = story.begin("producer", "a"), story.begin("producer", "b")
    story.recorder.ok(second, [Send(ORDERS, "b", 1)])
    story.recorder.ok(first, [Send(ORDERS, "a", 0)])
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {}
    story = Story()
    first, second = story.begin("producer", "a"), story.begin("producer", "b")
    story.recorder.ok(second, [Send(ORDERS, "b", 0)])
    story.recorder.ok(first, [Send(ORDERS, "a", 1)])
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"nonmonotonic-send": 1}


def test_nonmonotonic_send_when_a_maybe_is_read_before_what_was_acknowledged_earlier() -> None:
    story = Story()
    story.sent("producer", ("a", 1))
    story.maybe_sent("producer", "b")
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"nonmonotonic-send": 1}


def test_no_nonmonotonic_send_when_a_maybe_takes_effect_late() -> None:
    story = Story()
    story.maybe_sent("producer", "a")
    story.sent("producer", ("b", 0))
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {}


def test_no_nonmonotonic_send_when_a_repeat_is_answered_with_its_first_offset() -> None:
    story = Story()
    story.maybe_sent("producer", "a")
    story.sent("producer", ("b", 1))
    story.sent("producer", ("a", 0))
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {}


def test_int_nonmonotonic_send_when_one_operation_is_acknowledged_out_of_order() -> None:
    story = Story()
    story.sent("producer", ("a", 1), ("b", 0))
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"int-nonmonotonic-send": 1}


def test_int_nonmonotonic_send_when_a_maybe_is_read_out_of_order() -> None:
    story = Story()
    story.maybe_sent("producer", "a", "b")
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"int-nonmonotonic-send": 1}


def test_no_int_nonmonotonic_send_when_the_sends_are_to_two_partitions() -> None:
    story = Story()
    story.committed("worker", Send(ORDERS, "a", 5), Send(OTHER, "b", 3))
    story.polled("reader", read((5, "a")), read((3, "b"), where=OTHER))
    assert story.found() == {}
