"""Committed offsets move only by a commit, and a group reads the newest commit."""

import pytest

from tests.history.format import Commit, Committed, Function
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder

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
