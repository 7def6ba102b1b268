"""Committed offsets move only by a commit, and are read as the newest commit left them."""

import pytest

from tests.history.format import Commit, Committed, Function
from tests.history.story import ORDERS, OTHER, Story

FOUND = {"wrong-committed": 1}


def commit(story: Story, offset: int, outcome: str = "ok", group: str = "workers") -> None:
    operation = story.recorder.invoke("worker", Function.COMMIT, [Commit(ORDERS, offset)], group=group)
    getattr(story.recorder, outcome)(operation)


def read_back(story: Story, offset: int | None, group: str = "workers") -> None:
    operation = story.recorder.invoke("worker", Function.COMMITTED, group=group)
    story.recorder.ok(operation, [Committed(ORDERS, offset), Committed(OTHER, None)])


def test_nothing_is_wrong_when_the_newest_commit_is_read() -> None:
    story = Story()
    read_back(story, None)
    for offset in (5, 7, 3):
        commit(story, offset)
        read_back(story, offset)
    assert story.found() == {}


@pytest.mark.parametrize("told", [None, 5, 9])
def test_wrong_committed_when_nothing_an_older_commit_or_another_offset_is_read(told: int | None) -> None:
    story = Story()
    commit(story, 5)
    commit(story, 7)
    read_back(story, told)
    assert story.found() == FOUND


@pytest.mark.parametrize("told", [5, 7])
def test_a_maybe_is_read_or_not_however_late(told: int) -> None:
    story = Story()
    commit(story, 7, "maybe")
    commit(story, 5)
    read_back(story, told)
    assert story.found() == {}


def test_wrong_committed_when_a_failed_commit_is_read() -> None:
    story = Story()
    commit(story, 5)
    commit(story, 7, "fail")
    read_back(story, 7)
    assert story.found() == FOUND


def test_wrong_committed_when_another_groups_commit_is_read() -> None:
    story = Story()
    commit(story, 5, group="others")
    read_back(story, 5)
    assert story.found() == FOUND


@pytest.mark.parametrize("told", [None, 5])
def test_a_commit_that_overlaps_the_read_is_seen_or_not(told: int | None) -> None:
    story = Story()
    operation = story.recorder.invoke("worker", Function.COMMIT, [Commit(ORDERS, 5)], group="workers")
    reading = story.recorder.invoke("reader", Function.COMMITTED, group="workers")
    story.recorder.ok(operation)
    story.recorder.ok(reading, [Committed(ORDERS, told)])
    assert story.found() == {}


@pytest.mark.parametrize("told", [5, 7])
def test_of_two_commits_that_overlap_either_may_be_the_newest(told: int) -> None:
    story = Story()
    first = story.recorder.invoke("one", Function.COMMIT, [Commit(ORDERS, 5)], group="workers")
    second = story.recorder.invoke("other", Function.COMMIT, [Commit(ORDERS, 7)], group="workers")
    story.recorder.ok(second)
    story.recorder.ok(first)
    read_back(story, told)
    assert story.found() == {}


def test_a_commit_of_a_transaction_counts() -> None:
    story = Story()
    story.recorder.ok(story.recorder.invoke("worker", Function.TXN, [Commit(ORDERS, 5)], group="workers"))
    read_back(story, None)
    assert story.found() == FOUND
