"""inconsistent-offsets and duplicate: faulty histories made by hand, and beside them the nearest that are right."""

from tests.history.format import Function, Send
from tests.history.story import ORDERS, OTHER, Story, abc, read


def test_a_history_of_nothing_is_clean() -> None:
    assert Story().found() == {}


def test_records_sent_and_read_in_order_are_clean() -> None:
    assert abc().found() == {}


def test_inconsistent_offsets_when_two_polls_disagree() -> None:
    story = abc()
    story.maybe_sent("other", "x")
    story.polled("late", read((1, "x")))
    assert story.found() == {"inconsistent-offsets": 1}


def test_inconsistent_offsets_when_two_sends_were_given_one_offset() -> None:
    story = abc()
    story.sent("other", ("x", 2))
    assert story.found() == {"inconsistent-offsets": 1, "lost-write": 1}


def test_no_inconsistent_offsets_when_a_maybe_names_an_offset_that_another_has() -> None:
    story = abc()
    operation = story.begin("other", "x")
    story.recorder.maybe(operation, [Send(ORDERS, "x", 1)])
    assert story.found() == {}


def test_inconsistent_offsets_when_a_poll_proves_that_the_maybe_took_effect() -> None:
    story = abc()
    operation = story.recorder.invoke("other", Function.TXN, [Send(ORDERS, "x"), Send(OTHER, "y")])
    story.recorder.maybe(operation, [Send(ORDERS, "x", 1), Send(OTHER, "y")])
    story.polled("late", read((0, "y"), where=OTHER))
    assert story.found() == {"inconsistent-offsets": 1, "torn-transaction": 1}


def test_equal_values_in_different_partitions_are_different_records() -> None:
    story = abc()
    story.sent("producer", ("a", 5), where=OTHER)
    story.polled("reader", read((5, "a"), where=OTHER))
    assert story.found() == {}


def test_duplicate_when_a_record_is_at_two_offsets() -> None:
    story = abc()
    story.polled("reader", read((3, "a")))
    assert story.found() == {"duplicate": 1}
    assert story.check().examples[0].anomaly.offsets == (0, 3)


def test_duplicate_even_of_a_send_told_of_another_offset_than_it_is_read_at() -> None:
    story = abc()
    story.sent("producer", ("d", 4))
    story.polled("reader", read((3, "d")))
    assert story.found() == {"duplicate": 1}


def test_no_duplicate_when_a_record_is_read_again_after_a_seek() -> None:
    story = abc()
    story.sought("reader", 0)
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {}


def test_retry_duplicates_are_counted_apart_when_allowed_and_explained_by_attempts() -> None:
    story = Story()
    story.sent("producer", ("a", 1), attempts=2)
    story.polled("reader", read((0, "a"), (1, "a")))
    assert story.found() == {"duplicate": 1}
    report = story.check(allow_retry_duplicates=True)
    assert report.is_clean
    assert report.counts.retry_duplicates == 1
    assert report.explained[0].values == ("a",)


def test_retry_duplicates_are_explained_by_a_maybe_and_a_second_send() -> None:
    story = Story()
    story.maybe_sent("producer", "a", attempts=1)
    story.sent("producer", ("a", 1))
    story.polled("reader", read((0, "a"), (1, "a")))
    assert story.check(allow_retry_duplicates=True).counts.retry_duplicates == 1


def test_retry_duplicates_of_a_maybe_are_explained_when_nobody_counted_its_attempts() -> None:
    story = Story()
    story.maybe_sent("producer", "a")
    story.polled("reader", read((0, "a"), (1, "a"), (2, "a")))
    assert story.found(allow_retry_duplicates=True) == {}


def test_duplicate_though_retries_are_allowed_when_there_are_more_copies_than_attempts() -> None:
    story = Story()
    story.sent("producer", ("a", 1), attempts=2)
    story.polled("reader", read((0, "a"), (1, "a"), (2, "a")))
    assert story.found(allow_retry_duplicates=True) == {"duplicate": 1}


def test_duplicate_though_retries_are_allowed_when_the_other_attempt_failed() -> None:
    story = Story()
    story.failed_to_send("producer", "a")
    story.sent("producer", ("a", 0))
    story.polled("reader", read((0, "a"), (1, "a")))
    assert story.found(allow_retry_duplicates=True) == {"duplicate": 1}
