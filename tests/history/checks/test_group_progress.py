"""Owners of a group's leases commit one after the other and onwards, and pass no record that no member was given."""

import pytest

from tests.history.format import Assign, Commit, Function, Poll, Reset, Seek
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc, read, sent_and_read

GROUP = "workers"


def commit(
    history: HistoryBuilder, process: str, offset: int, epoch: int | None, outcome: str = "ok", group: str = GROUP
) -> None:
    operation = history.recorder.invoke(process, Function.COMMIT, [Commit(ORDERS, offset, epoch)], group=group)
    getattr(history.recorder, outcome)(operation)


def reset(history: HistoryBuilder, offset: int | None, outcome: str = "ok") -> None:
    operation = history.recorder.invoke("operator", Function.RESET, [Reset(ORDERS, offset)], group=GROUP)
    getattr(history.recorder, outcome)(operation)


def give(history: HistoryBuilder, process: str, poll: Poll, group: str | None = GROUP) -> None:
    history.recorder.ok(history.recorder.invoke(process, Function.POLL, group=group), [poll])


def begin_at(history: HistoryBuilder, process: str, position: int) -> None:
    history.recorder.done(process, Function.ASSIGN, [Assign((), ((ORDERS, position),))], group=GROUP)


def test_nothing_is_wrong_when_owners_commit_in_turn() -> None:
    history = HistoryBuilder()
    for process, offset, epoch in (("a", 1, 7), ("a", 2, 7), ("b", 2, 8), ("b", 5, 8), ("a", 5, 9)):
        commit(history, process, offset, epoch)
    assert history.found() == {}


def test_two_owners_when_both_commit_under_one_epoch() -> None:
    history = HistoryBuilder()
    commit(history, "a", 1, 7)
    commit(history, "b", 2, 7)
    assert history.found() == {"two-owners": 1}


def test_two_owners_when_one_commits_after_its_successor_has() -> None:
    history = HistoryBuilder()
    for process, offset, epoch in (("a", 1, 7), ("b", 2, 8), ("a", 3, 7)):
        commit(history, process, offset, epoch)
    assert history.found() == {"two-owners": 1}


@pytest.mark.parametrize("outcome", ["fail", "maybe"])
def test_a_fenced_owner_that_was_refused_or_not_answered_is_no_second_owner(outcome: str) -> None:
    history = HistoryBuilder()
    commit(history, "a", 1, 7)
    commit(history, "b", 2, 8)
    commit(history, "a", 3, 7, outcome)
    commit(history, "c", 3, 8, outcome)
    assert history.found() == {}


def test_commits_that_overlap_are_in_either_order() -> None:
    history = HistoryBuilder()
    late = history.recorder.invoke("a", Function.COMMIT, [Commit(ORDERS, 1, 7)], group=GROUP)
    commit(history, "b", 2, 8)
    history.recorder.ok(late)
    assert history.found() == {}


def test_epochs_of_other_partitions_and_groups_are_their_own() -> None:
    history = HistoryBuilder()
    commit(history, "a", 9, 8)
    commit(history, "b", 1, 7, group="others")
    history.recorder.ok(history.recorder.invoke("c", Function.COMMIT, [Commit(OTHER, 1, 8)], group=GROUP))
    assert history.found() == {}


def test_epochs_begin_anew_when_the_group_was_deleted() -> None:
    history = HistoryBuilder()
    commit(history, "a", 9, 8)
    reset(history, None)
    commit(history, "b", 1, 3)
    assert history.found() == {}


def test_commit_back_when_an_owner_commits_less_than_stood() -> None:
    history = HistoryBuilder()
    commit(history, "a", 5, 7)
    commit(history, "b", 4, 8)
    assert history.found() == {"commit-back": 1}


def test_commit_back_also_behind_a_commit_that_had_overlapped_another() -> None:
    history = HistoryBuilder()
    early = history.recorder.invoke("a", Function.COMMIT, [Commit(ORDERS, 6, 7)], group=GROUP)
    commit(history, "a", 3, 7)
    history.recorder.ok(early)
    commit(history, "a", 5, 7)
    assert history.found() == {"commit-back": 1}


@pytest.mark.parametrize("outcome", ["ok", "maybe"])
def test_commit_may_go_back_after_an_operators_reset(outcome: str) -> None:
    history = HistoryBuilder()
    commit(history, "a", 5, 7)
    reset(history, 2, outcome)
    commit(history, "b", 3, 9)
    assert history.found() == {}


def test_commit_back_when_the_reset_had_failed_or_was_before() -> None:
    history = HistoryBuilder()
    reset(history, 2)
    commit(history, "a", 5, 7)
    reset(history, 2, "fail")
    commit(history, "b", 3, 9)
    assert history.found() == {"commit-back": 1}


def test_commit_may_go_back_where_its_process_has_sought() -> None:
    history = HistoryBuilder()
    commit(history, "a", 5, 7)
    history.recorder.done("a", Function.SEEK, [Seek(ORDERS, 2)])
    commit(history, "a", 3, 7)
    assert history.found() == {}


def test_commit_may_go_back_where_nobody_holds_leases() -> None:
    history = HistoryBuilder()
    commit(history, "a", 5, None)
    commit(history, "b", 3, None)
    assert history.found() == {}


def test_group_skip_when_no_member_was_given_what_was_committed_past() -> None:
    history = abc()
    begin_at(history, "a", 0)
    give(history, "a", read((0, "a")))
    commit(history, "a", 2, 7)
    [example] = history.check().examples
    assert (str(example.anomaly.kind), example.anomaly.offsets, example.anomaly.values) == ("group-skip", (1,), ("b",))


def test_group_skip_when_only_others_or_a_poll_that_was_taken_back_had_the_record() -> None:
    history = abc()
    begin_at(history, "a", 0)
    give(history, "a", read((0, "a")))
    give(history, "elsewhere", read((0, "a"), (1, "b")), group="others")
    give(history, "alone", read((0, "a"), (1, "b")), group=None)
    commit(history, "a", 2, None)
    assert history.found() == {"group-skip": 1}


def test_nothing_is_skipped_when_another_member_had_it_or_nobody_committed_past_it() -> None:
    history = abc()
    begin_at(history, "a", 0)
    give(history, "a", read((0, "a")))
    begin_at(history, "b", 1)
    give(history, "b", read((1, "b")))
    commit(history, "b", 2, 8)
    assert history.found() == {}


def test_nothing_is_skipped_below_where_the_group_began() -> None:
    history = abc()
    begin_at(history, "a", 2)
    commit(history, "a", 2, 7)
    give(history, "a", read((2, "c")))
    commit(history, "a", 3, 7)
    assert history.found() == {}


def test_group_skip_when_it_began_lower_and_was_given_nothing_at_all() -> None:
    history = abc()
    begin_at(history, "a", 0)
    commit(history, "a", 3, 7)
    assert history.found() == {"group-skip": 1}


@pytest.mark.parametrize("outcome", ["fail", "maybe"])
def test_nothing_is_skipped_by_a_commit_that_was_not_confirmed(outcome: str) -> None:
    history = abc()
    begin_at(history, "a", 0)
    commit(history, "a", 3, 7, outcome)
    assert history.found() == {}


def test_nothing_is_skipped_that_was_truncated_or_that_an_operator_passed_over() -> None:
    for excuse in (lambda history: history.truncated(2), lambda history: reset(history, 2)):
        history = abc()
        begin_at(history, "a", 0)
        excuse(history)
        begin_at(history, "a", 2)
        give(history, "a", read((2, "c")))
        commit(history, "a", 3, 7)
        assert history.found() == {}


def test_record_that_nobody_promised_may_be_passed_over() -> None:
    history = HistoryBuilder()
    history.maybe_sent("producer", "a")
    history.sent("producer", ("b", 0))
    history.polled("reader", read((0, "b")))
    begin_at(history, "m", 0)
    give(history, "m", read((0, "b")))
    commit(history, "m", 1, 7)
    assert history.found() == {}


def test_member_with_a_filter_may_pass_over_what_the_filter_excludes() -> None:
    history = sent_and_read(("a7", 0), ("b8", 1), ("c7", 2))
    begin_at(history, "m", 0)
    give(history, "m", Poll(ORDERS, ((0, "a7"),), None, "7"))
    give(history, "m", Poll(ORDERS, (), None, "7"))
    commit(history, "m", 2, 7)
    assert history.found() == {}
    commit(history, "m", 3, 7)
    [example] = history.check().examples
    assert (str(example.anomaly.kind), example.anomaly.values) == ("group-skip", ("c7",))
