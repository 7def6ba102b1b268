"""inconsistent-offsets and duplicate: faulty histories made by hand, and with them the nearest that are right."""

from tests.history.format import Function, Send
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc, read


def test_a_history_of_nothing_is_clean() -> None:
    assert HistoryBuilder().found() == {}


def test_records_sent_and_read_in_order_are_clean() -> None:
    assert abc().found() == {}


def test_inconsistent_offsets_when_two_polls_disagree() -> None:
    history = abc()
    history.maybe_sent("other", "x")
    history.polled("late", read((1, "x")))
    assert history.found() == {"inconsistent-offsets": 1}


def test_inconsistent_offsets_when_two_sends_were_given_one_offset() -> None:
    history = abc()
    history.sent("other", ("x", 2))
    assert history.found() == {"inconsistent-offsets": 1, "lost-write": 1}


def test_no_inconsistent_offsets_when_a_maybe_names_an_offset_that_another_has() -> None:
    history = abc()
    operation = history.begin("other", "x")
    history.recorder.maybe(operation, [Send(ORDERS, "x", 1)])
    assert history.found() == {}


def test_inconsistent_offsets_when_a_poll_proves_that_the_maybe_took_effect() -> None:
    history = abc()
    operation = history.recorder.invoke("other", Function.TXN, [Send(ORDERS, "x"), Send(OTHER, "y")])
    history.recorder.maybe(operation, [Send(ORDERS, "x", 1), Send(OTHER, "y")])
    history.polled("late", read((0, "y"), where=OTHER))
    assert history.found() == {"inconsistent-offsets": 1, "torn-transaction": 1}


def test_equal_values_in_different_partitions_are_different_records() -> None:
    history = abc()
    history.sent("producer", ("a", 5), where=OTHER)
    history.polled("reader", read((5, "a"), where=OTHER))
    assert history.found() == {}


def test_duplicate_when_a_record_is_at_two_offsets() -> None:
    history = abc()
    history.polled("reader", read((3, "a")))
    assert history.found() == {"duplicate": 1}
    assert history.check().examples[0].anomaly.offsets == (0, 3)


def test_duplicate_even_of_a_send_told_of_another_offset_than_it_is_read_at() -> None:
    history = abc()
    history.sent("producer", ("d", 4))
    history.polled("reader", read((3, "d")))
    assert history.found() == {"duplicate": 1}


def test_no_duplicate_when_a_record_is_read_again_after_a_seek() -> None:
    history = abc()
    history.sought("reader", 0)
    history.polled("reader", read((0, "a"), (1, "b")))
    assert history.found() == {}


def test_retry_duplicates_are_counted_apart_when_allowed_and_explained_by_attempts() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("a", 1), attempts=2)
    history.polled("reader", read((0, "a"), (1, "a")))
    assert history.found() == {"duplicate": 1}
    report = history.check(allow_retry_duplicates=True)
    assert report.is_clean
    assert report.counts.retry_duplicates == 1
    assert report.explained[0].values == ("a",)


def test_retry_duplicates_are_explained_by_a_maybe_and_a_second_send() -> None:
    history = HistoryBuilder()
    history.maybe_sent("producer", "a", attempts=1)
    history.sent("producer", ("a", 1))
    history.polled("reader", read((0, "a"), (1, "a")))
    assert history.check(allow_retry_duplicates=True).counts.retry_duplicates == 1


def test_retry_duplicates_of_a_maybe_are_explained_when_nobody_counted_its_attempts() -> None:
    history = HistoryBuilder()
    history.maybe_sent("producer", "a")
    history.polled("reader", read((0, "a"), (1, "a"), (2, "a")))
    assert history.found(allow_retry_duplicates=True) == {}


def test_duplicate_though_retries_are_allowed_when_there_are_more_copies_than_attempts() -> None:
    history = HistoryBuilder()
    history.sent("producer", ("a", 1), attempts=2)
    history.polled("reader", read((0, "a"), (1, "a"), (2, "a")))
    assert history.found(allow_retry_duplicates=True) == {"duplicate": 1}


def test_duplicate_though_retries_are_allowed_when_the_other_attempt_failed() -> None:
    history = HistoryBuilder()
    history.failed_to_send("producer", "a")
    history.sent("producer", ("a", 0))
    history.polled("reader", read((0, "a"), (1, "a")))
    assert history.found(allow_retry_duplicates=True) == {"duplicate": 1}
