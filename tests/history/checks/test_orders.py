"""Committed offsets move only by a commit, and a group reads the newest commit.

inconsistent-offsets and duplicate: faulty histories made by hand, and with them the nearest that are right.

Polls and sends out of order in histories made by hand, each with the nearest right one.
"""

import pytest

from tests.history.format import Commit, Committed, Function, Send
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc, read, sent_and_read

FOUND = {"wrong-committed": 1}


def commit(history: HistoryBuilder, offset: int, outcome: str = "ok", group: str = "workers") -> None:
    operation = history.recorder.invoke("worker", Function.COMMIT, [Commit(ORDERS, offset)], group=group)
    getattr(history.recorder, outcome)(operation)


def read_back(history: HistoryBuilder, offset: int | None, group: str = "workers") -> None:
    operation = history.recorder.invoke("worker", Function.COMMITTED, group=group)
    history.recorder.ok(operation, [Committed(ORDERS, offset), Committed(OTHER, None)])


def test_nothing_is_wrong_when_the_newest_commit_is_read() -> None:
    history = HistoryBuilder()
    read_back(history, None)
    for offset in (5, 7, 3):
        commit(history, offset)
        read_back(history, offset)
    assert history.found() == {}


@pytest.mark.parametrize("read_offset", [None, 5, 9])
def test_wrong_committed_when_nothing_an_older_commit_or_another_offset_is_read(read_offset: int | None) -> None:
    history = HistoryBuilder()
    commit(history, 5)
    commit(history, 7)
    read_back(history, read_offset)
    assert history.found() == FOUND


@pytest.mark.parametrize("read_offset", [5, 7])
def test_a_maybe_is_read_or_not_however_late(read_offset: int) -> None:
    history = HistoryBuilder()
    commit(history, 7, "maybe")
    commit(history, 5)
    read_back(history, read_offset)
    assert history.found() == {}


def test_wrong_committed_when_a_failed_commit_is_read() -> None:
    history = HistoryBuilder()
    commit(history, 5)
    commit(history, 7, "fail")
    read_back(history, 7)
    assert history.found() == FOUND


def test_wrong_committed_when_another_groups_commit_is_read() -> None:
    history = HistoryBuilder()
    commit(history, 5, group="others")
    read_back(history, 5)
    assert history.found() == FOUND


@pytest.mark.parametrize("read_offset", [None, 5])
def test_a_commit_that_overlaps_the_read_is_seen_or_not(read_offset: int | None) -> None:
    history = HistoryBuilder()
    operation = history.recorder.invoke("worker", Function.COMMIT, [Commit(ORDERS, 5)], group="workers")
    reading = history.recorder.invoke("reader", Function.COMMITTED, group="workers")
    history.recorder.ok(operation)
    history.recorder.ok(reading, [Committed(ORDERS, read_offset)])
    assert history.found() == {}


@pytest.mark.parametrize("read_offset", [5, 7])
def test_of_two_commits_that_overlap_either_may_be_the_newest(read_offset: int) -> None:
    history = HistoryBuilder()
    first = history.recorder.invoke("one", Function.COMMIT, [Commit(ORDERS, 5)], group="workers")
    second = history.recorder.invoke("other", Function.COMMIT, [Commit(ORDERS, 7)], group="workers")
    history.recorder.ok(second)
    history.recorder.ok(first)
    read_back(history, read_offset)
    assert history.found() == {}


def test_a_commit_of_a_transaction_counts() -> None:
    history = HistoryBuilder()
    history.recorder.ok(history.recorder.invoke("worker", Function.TXN, [Commit(ORDERS, 5)], group="workers"))
    read_back(history, None)
    assert history.found() == FOUND


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
