"""The contract of GroupStore, held by the adapters in memory and on DynamoDB."""

from dataclasses import replace
from itertools import product

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken, MayGoBack, SeenCommit, refusal
from penstock_core.ids import GroupName, MemberName, Offset, Partition, PartitionKey, TopicId, TopicName
from tests.contract.conftest import Ports
from tests.support.group_commits import commits_of
from tests.support.refusals import refused

GROUP = GroupName("billing")
COMMIT = CommittedOffset(
    topic=TopicName("orders"),
    partition=PartitionKey(TopicId("t1"), Partition(0)),
    offset=Offset(5),
    metadata="m",
    committed_at_ms=9,
)
FREE = Lease(topic=COMMIT.topic, partition=COMMIT.partition)
ME, OTHER = MemberName("me"), MemberName("=other")


def take(ports: Ports, seen: Lease, owner: MemberName) -> Lease:
    return ports.groups.take_lease(GROUP, seen, owner, seen.epoch + 1)


def commit(
    ports: Ports,
    committed: CommittedOffset,
    token: LeaseToken | None = None,
    may_go_back: MayGoBack = True,
    may_create: bool = True,
) -> None:
    ports.groups.commit(GROUP, committed, token, may_go_back, may_create)


def test_committed_is_empty_for_a_group_that_never_committed(ports: Ports) -> None:
    assert list(commits_of(ports.groups, GROUP)) == []


def test_commit_replaces_the_same_partition_only(ports: Ports) -> None:
    other = replace(COMMIT, partition=PartitionKey(TopicId("t1"), Partition(10)), metadata="")
    commit(ports, COMMIT)
    commit(ports, other)
    commit(ports, replace(COMMIT, offset=Offset(3)))
    found = sorted(commits_of(ports.groups, GROUP), key=lambda item: item.partition.partition)
    assert found == [replace(COMMIT, offset=Offset(3)), other]


def test_groups_do_not_meet(ports: Ports) -> None:
    commit(ports, COMMIT)
    assert list(commits_of(ports.groups, GroupName("shipping"))) == []


@pytest.mark.slow
def test_committed_reads_past_one_answer(ports: Ports) -> None:
    commits = [
        replace(COMMIT, partition=PartitionKey(TopicId("t1"), Partition(number)), metadata="x" * 4096)
        for number in range(300)
    ]
    for each in commits:
        commit(ports, each)
    assert sorted(commits_of(ports.groups, GROUP), key=lambda item: item.partition.partition) == commits


def test_lease_is_taken_under_the_next_epoch_with_what_was_committed(ports: Ports) -> None:
    commit(ports, COMMIT)
    [seen] = ports.groups.leases(GROUP)
    taken = take(ports, seen, ME)
    assert taken == Lease(
        topic=COMMIT.topic,
        partition=COMMIT.partition,
        owner=ME,
        epoch=1,
        offset=COMMIT.offset,
        metadata="m",
        committed_at_ms=9,
    )
    assert list(ports.groups.leases(GROUP)) == [taken]
    assert ports.groups.find_leases(GROUP, [COMMIT.partition]) == {COMMIT.partition: taken}
    assert take(ports, taken, OTHER) == replace(taken, owner=OTHER, epoch=2)


def test_lease_that_was_only_taken_has_committed_nothing(ports: Ports) -> None:
    assert take(ports, FREE, ME) == replace(FREE, owner=ME, epoch=1)
    assert list(commits_of(ports.groups, GROUP)) == []


def test_lease_is_taken_once_of_two_that_saw_the_same(ports: Ports) -> None:
    first = take(ports, FREE, ME)
    for seen in (FREE, replace(first, epoch=2)):
        refused(ErrorCode.CONCURRENT_UPDATE, lambda seen=seen: take(ports, seen, OTHER))  # type: ignore[misc]
    assert list(ports.groups.leases(GROUP)) == [first]


def test_find_leases_finds_those_that_there_are_past_one_call(ports: Ports) -> None:
    keys = [PartitionKey(TopicId("t1"), Partition(number)) for number in range(150)]
    for key in keys[::2]:
        take(ports, replace(FREE, partition=key), ME)
    found = ports.groups.find_leases(GROUP, keys)
    assert sorted(found) == keys[::2]
    assert all(lease.partition == key for key, lease in found.items())
    assert ports.groups.find_leases(GROUP, []) == {}


def test_commit_counts_for_owner_and_epoch_only(ports: Ports) -> None:
    taken = take(ports, FREE, ME)
    commit(ports, COMMIT, LeaseToken(owner=ME, epoch=1))
    for token in (LeaseToken(owner=ME, epoch=2), LeaseToken(owner=OTHER, epoch=1)):
        error = refused(
            ErrorCode.LEASE_FENCED,
            lambda token=token: commit(ports, replace(COMMIT, offset=Offset(8)), token),  # type: ignore[misc]
        )
        assert error.facts["lease_epoch"] == 1
    refused(ErrorCode.LEASE_HELD, lambda: commit(ports, replace(COMMIT, offset=Offset(8))))
    assert list(commits_of(ports.groups, GROUP)) == [COMMIT]
    take(ports, taken, ME)
    refused(ErrorCode.LEASE_FENCED, lambda: commit(ports, COMMIT, LeaseToken(owner=ME, epoch=1)))
    commit(ports, replace(COMMIT, offset=Offset(6)), LeaseToken(owner=ME, epoch=2))


def test_commit_of_a_member_is_fenced_where_there_is_no_lease(ports: Ports) -> None:
    refused(ErrorCode.LEASE_FENCED, lambda: commit(ports, COMMIT, LeaseToken(owner=ME, epoch=1)))
    assert list(ports.groups.leases(GROUP)) == []


def test_commit_that_may_not_create_needs_a_lease(ports: Ports) -> None:
    refused(ErrorCode.UNKNOWN_GROUP, lambda: commit(ports, COMMIT, may_create=False))
    assert list(ports.groups.leases(GROUP)) == []
    commit(ports, COMMIT)
    commit(ports, replace(COMMIT, offset=Offset(6)), may_create=False)
    [found] = commits_of(ports.groups, GROUP)
    assert found.offset == 6


def test_commit_goes_back_only_where_it_may(ports: Ports) -> None:
    take(ports, FREE, ME)
    token = LeaseToken(owner=ME, epoch=1)
    for offset in (5, 5, 7):
        commit(ports, replace(COMMIT, offset=Offset(offset)), token, may_go_back=False)
    behind = replace(COMMIT, offset=Offset(6))
    error = refused(ErrorCode.OFFSET_BEHIND, lambda: commit(ports, behind, token, may_go_back=False))
    assert error.facts["committed_offset"] == 7
    commit(ports, behind, token, may_go_back=True)
    assert list(commits_of(ports.groups, GROUP)) == [behind]


@pytest.mark.slow
def test_commit_is_refused_exactly_where_lease_refusal_says(ports: Ports, request: pytest.FixtureRequest) -> None:
    """The rule is written twice: `groups.lease.refusal` in Python, and `lease_item.commit_update` as a condition.

    moto, which is slow, judges one case of eleven.
    """
    tokens = (None, LeaseToken(owner=ME, epoch=1), LeaseToken(owner=ME, epoch=2), LeaseToken(owner=OTHER, epoch=1))
    seen = SeenCommit(offset=COMMIT.offset, committed_at_ms=COMMIT.committed_at_ms)
    others = [replace(seen, offset=Offset(offset)) for offset in (4, 7)]
    others += [replace(seen, committed_at_ms=committed_at_ms) for committed_at_ms in (8, 10)]
    back: tuple[MayGoBack, ...] = (False, True, seen, *others)
    steps = product((False, True), (False, True), tokens, (4, 5, 6), back, (False, True))
    each = 11 if "[aws" in request.node.name or "[direct" in request.node.name else 1
    for number, (is_owned, has_commit, token, offset, may_go_back, may_create) in enumerate([*steps][::each]):
        partition = PartitionKey(TopicId("t1"), Partition(number))
        at = replace(COMMIT, partition=partition)
        if has_commit:
            commit(ports, at)
        if is_owned:
            take(ports, replace(FREE, partition=partition), ME)
        before = ports.groups.find_leases(GROUP, [partition]).get(partition)
        rule = refusal(before, partition, Offset(offset), token, may_go_back=may_go_back, may_create=may_create)
        found = None
        try:
            commit(ports, replace(at, offset=Offset(offset)), token, may_go_back, may_create)
        except PenstockError as error:
            found = error
        told = [None if each is None else (each.code, each.facts, each.maybe_applied) for each in (found, rule)]
        assert told[0] == told[1], (is_owned, has_commit, token, offset, may_go_back, may_create)
        after = ports.groups.find_leases(GROUP, [partition]).get(partition)
        assert (after == before) if rule else (after is not None and after.offset == offset)


def test_reset_fences_the_owner(ports: Ports) -> None:
    taken = take(ports, FREE, ME)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.groups.reset_lease(GROUP, FREE, COMMIT, FREE.epoch + 1))
    ports.groups.reset_lease(GROUP, taken, COMMIT, taken.epoch + 1)
    [lease] = ports.groups.leases(GROUP)
    assert (lease.owner, lease.epoch, lease.offset) == (None, 2, COMMIT.offset)
    refused(ErrorCode.LEASE_FENCED, lambda: commit(ports, COMMIT, LeaseToken(owner=ME, epoch=1)))
    commit(ports, replace(COMMIT, offset=Offset(2)))


def test_release_fences_the_owner_and_leaves_the_offset(ports: Ports) -> None:
    taken = take(ports, FREE, ME)
    commit(ports, COMMIT, LeaseToken(owner=ME, epoch=1))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.groups.release_lease(GROUP, FREE, 2))
    ports.groups.release_lease(GROUP, taken, 2)
    [lease] = ports.groups.leases(GROUP)
    assert (lease.owner, lease.epoch, lease.offset) == (None, 2, COMMIT.offset)
    refused(ErrorCode.LEASE_FENCED, lambda: commit(ports, COMMIT, LeaseToken(owner=ME, epoch=1)))
    commit(ports, replace(COMMIT, offset=Offset(2)))


def test_reset_makes_a_lease_that_was_not_there(ports: Ports) -> None:
    ports.groups.reset_lease(GROUP, FREE, COMMIT, FREE.epoch + 1)
    assert [(lease.epoch, lease.offset) for lease in ports.groups.leases(GROUP)] == [(1, COMMIT.offset)]


def test_delete_lease_spares_one_that_has_changed(ports: Ports) -> None:
    commit(ports, COMMIT)
    [seen] = ports.groups.leases(GROUP)
    taken = take(ports, seen, ME)
    assert not ports.groups.delete_lease(GROUP, seen)
    commit(ports, replace(COMMIT, committed_at_ms=10), LeaseToken(owner=ME, epoch=1))
    assert not ports.groups.delete_lease(GROUP, taken)
    [now] = ports.groups.leases(GROUP)
    assert ports.groups.delete_lease(GROUP, now)
    assert list(ports.groups.leases(GROUP)) == []


def test_delete_lease_without_commit_spares_one_with(ports: Ports) -> None:
    taken = take(ports, FREE, ME)
    commit(ports, COMMIT, LeaseToken(owner=ME, epoch=1))
    assert not ports.groups.delete_lease(GROUP, taken)


def _pages(ports: Ports, limit: int, topic_id: TopicId | None = None) -> list[list[Lease]]:
    pages: list[list[Lease]] = []
    after, has_more = "", True
    while has_more:
        leases, has_more = ports.groups.lease_page(GROUP, topic_id, after, limit)
        pages.append([*leases])
        after = str(leases[-1].partition) if leases else after
        assert leases or not has_more
    return pages


def test_lease_page_goes_on_behind_a_partition_in_order_of_texts(ports: Ports) -> None:
    keys = [PartitionKey(TopicId(topic), Partition(number)) for topic in ("t1", "t2") for number in (0, 1, 2, 10, 100)]
    for key in keys:
        commit(ports, replace(COMMIT, partition=key))
    pages = _pages(ports, 3)
    assert [[str(lease.partition) for lease in page] for page in pages if page] == [
        ["t1#0", "t1#1", "t1#10"],
        ["t1#100", "t1#2", "t2#0"],
        ["t2#1", "t2#10", "t2#100"],
        ["t2#2"],
    ]
    assert pages[0][0].offset == COMMIT.offset
    assert {str(lease.partition) for page in _pages(ports, 2, TopicId("t2")) for lease in page} == {
        "t2#0",
        "t2#1",
        "t2#10",
        "t2#100",
        "t2#2",
    }
    assert _pages(ports, 2, TopicId("t")) == [[]]


@pytest.mark.parametrize("after", ["~", "zzz", "t2#2", "t2#2 ", "€" * 249])
def test_lease_page_is_empty_behind_the_last_partition(ports: Ports, after: str) -> None:
    commit(ports, replace(COMMIT, partition=PartitionKey(TopicId("t2"), Partition(2))))
    assert ports.groups.lease_page(GROUP, None, after, 2) == ([], False)
    assert ports.groups.lease_page(GROUP, TopicId("t2"), after, 2) == ([], False)
