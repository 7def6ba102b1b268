"""Owners of a group's leases commit one after the other, onwards, and past nothing that nobody was given."""

import pytest

from tests.history.format import Assign, Commit, Function, Poll, Reset, Seek
from tests.history.story import ORDERS, OTHER, Story, abc, read

GROUP = "workers"


def commit(story: Story, process: str, offset: int, epoch: int | None, outcome: str = "ok", group: str = GROUP) -> None:
    operation = story.recorder.invoke(process, Function.COMMIT, [Commit(ORDERS, offset, epoch)], group=group)
    getattr(story.recorder, outcome)(operation)


def reset(story: Story, offset: int | None, outcome: str = "ok") -> None:
    operation = story.recorder.invoke("operator", Function.RESET, [Reset(ORDERS, offset)], group=GROUP)
    getattr(story.recorder, outcome)(operation)


def give(story: Story, process: str, poll: Poll, group: str | None = GROUP) -> None:
    story.recorder.ok(story.recorder.invoke(process, Function.POLL, group=group), [poll])


def begin_at(story: Story, process: str, position: int) -> None:
    story.recorder.done(process, Function.ASSIGN, [Assign((), ((ORDERS, position),))], group=GROUP)


def test_nothing_is_wrong_when_owners_commit_in_turn() -> None:
    story = Story()
    for process, offset, epoch in (("a", 1, 7), ("a", 2, 7), ("b", 2, 8), ("b", 5, 8), ("a", 5, 9)):
        commit(story, process, offset, epoch)
    assert story.found() == {}


def test_two_owners_when_both_commit_under_one_epoch() -> None:
    story = Story()
    commit(story, "a", 1, 7)
    commit(story, "b", 2, 7)
    assert story.found() == {"two-owners": 1}


def test_two_owners_when_one_commits_after_its_successor_has() -> None:
    story = Story()
    for process, offset, epoch in (("a", 1, 7), ("b", 2, 8), ("a", 3, 7)):
        commit(story, process, offset, epoch)
    assert story.found() == {"two-owners": 1}


@pytest.mark.parametrize("outcome", ["fail", "maybe"])
def test_a_fenced_owner_that_was_refused_or_not_answered_is_no_second_owner(outcome: str) -> None:
    story = Story()
    commit(story, "a", 1, 7)
    commit(story, "b", 2, 8)
    commit(story, "a", 3, 7, outcome)
    commit(story, "c", 3, 8, outcome)
    assert story.found() == {}


def test_commits_that_overlap_are_in_either_order() -> None:
    story = Story()
    late = story.recorder.invoke("a", Function.COMMIT, [Commit(ORDERS, 1, 7)], group=GROUP)
    commit(story, "b", 2, 8)
    story.recorder.ok(late)
    assert story.found() == {}


def test_epochs_of_other_partitions_and_groups_are_their_own() -> None:
    story = Story()
    commit(story, "a", 9, 8)
    commit(story, "b", 1, 7, group="others")
    story.recorder.ok(story.recorder.invoke("c", Function.COMMIT, [Commit(OTHER, 1, 8)], group=GROUP))
    assert story.found() == {}


def test_epochs_begin_anew_when_the_group_was_deleted() -> None:
    story = Story()
    commit(story, "a", 9, 8)
    reset(story, None)
    commit(story, "b", 1, 3)
    assert story.found() == {}


def test_commit_back_when_an_owner_commits_less_than_stood() -> None:
    story = Story()
    commit(story, "a", 5, 7)
    commit(story, "b", 4, 8)
    assert story.found() == {"commit-back": 1}


def test_commit_back_also_behind_a_commit_that_had_overlapped_another() -> None:
    story = Story()
    early = story.recorder.invoke("a", Function.COMMIT, [Commit(ORDERS, 6, 7)], group=GROUP)
    commit(story, "a", 3, 7)
    story.recorder.ok(early)
    commit(story, "a", 5, 7)
    assert story.found() == {"commit-back": 1}


@pytest.mark.parametrize("outcome", ["ok", "maybe"])
def test_commit_may_go_back_after_an_operators_reset(outcome: str) -> None:
    story = Story()
    commit(story, "a", 5, 7)
    reset(story, 2, outcome)
    commit(story, "b", 3, 9)
    assert story.found() == {}


def test_commit_back_when_the_reset_had_failed_or_was_before() -> None:
    story = Story()
    reset(story, 2)
    commit(story, "a", 5, 7)
    reset(story, 2, "fail")
    commit(story, "b", 3, 9)
    assert story.found() == {"commit-back": 1}


def test_commit_may_go_back_where_its_process_has_sought() -> None:
    story = Story()
    commit(story, "a", 5, 7)
    story.recorder.done("a", Function.SEEK, [Seek(ORDERS, 2)])
    commit(story, "a", 3, 7)
    assert story.found() == {}


def test_commit_may_go_back_where_nobody_holds_leases() -> None:
    story = Story()
    commit(story, "a", 5, None)
    commit(story, "b", 3, None)
    assert story.found() == {}


def test_group_skip_when_no_member_was_given_what_was_committed_past() -> None:
    story = abc()
    begin_at(story, "a", 0)
    give(story, "a", read((0, "a")))
    commit(story, "a", 2, 7)
    [example] = story.check().examples
    assert (str(example.anomaly.kind), example.anomaly.offsets, example.anomaly.values) == ("group-skip", (1,), ("b",))


def test_group_skip_when_only_others_or_a_poll_that_was_taken_back_had_the_record() -> None:
    story = abc()
    begin_at(story, "a", 0)
    give(story, "a", read((0, "a")))
    give(story, "elsewhere", read((0, "a"), (1, "b")), group="others")
    give(story, "alone", read((0, "a"), (1, "b")), group=None)
    commit(story, "a", 2, None)
    assert story.found() == {"group-skip": 1}


def test_nothing_is_skipped_when_another_member_had_it_or_nobody_committed_past_it() -> None:
    story = abc()
    begin_at(story, "a", 0)
    give(story, "a", read((0, "a")))
    begin_at(story, "b", 1)
    give(story, "b", read((1, "b")))
    commit(story, "b", 2, 8)
    assert story.found() == {}


def test_nothing_is_skipped_below_where_the_group_began() -> None:
    story = abc()
    begin_at(story, "a", 2)
    commit(story, "a", 2, 7)
    give(story, "a", read((2, "c")))
    commit(story, "a", 3, 7)
    assert story.found() == {}


def test_group_skip_when_it_began_lower_and_was_given_nothing_at_all() -> None:
    story = abc()
    begin_at(story, "a", 0)
    commit(story, "a", 3, 7)
    assert story.found() == {"group-skip": 1}


@pytest.mark.parametrize("outcome", ["fail", "maybe"])
def test_nothing_is_skipped_by_a_commit_that_was_not_confirmed(outcome: str) -> None:
    story = abc()
    begin_at(story, "a", 0)
    commit(story, "a", 3, 7, outcome)
    assert story.found() == {}


def test_nothing_is_skipped_that_was_truncated_or_that_an_operator_passed_over() -> None:
    for excuse in (lambda story: story.truncated(2), lambda story: reset(story, 2)):
        story = abc()
        begin_at(story, "a", 0)
        excuse(story)
        begin_at(story, "a", 2)
        give(story, "a", read((2, "c")))
        commit(story, "a", 3, 7)
        assert story.found() == {}


def test_record_that_nobody_promised_may_be_passed_over() -> None:
    story = Story()
    story.maybe_sent("producer", "a")
    story.sent("producer", ("b", 0))
    story.polled("reader", read((0, "b")))
    begin_at(story, "m", 0)
    give(story, "m", read((0, "b")))
    commit(story, "m", 1, 7)
    assert story.found() == {}
