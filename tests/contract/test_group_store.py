"""What every GroupStore does, in memory and on DynamoDB."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, MemberName, Offset, Partition, TopicId, TopicName
from penstock_core.items import CommittedOffset
from penstock_core.keys import PartitionKey
from penstock_core.lease import Lease, Tenure
from tests.contract.conftest import Ports

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


def commit(ports: Ports, committed: CommittedOffset, tenure: Tenure | None = None, may_go_back: bool = True) -> None:
    ports.groups.commit(GROUP, committed, tenure, may_go_back)


def test_committed_is_empty_for_a_group_that_never_committed(ports: Ports) -> None:
    assert list(ports.groups.committed(GROUP)) == []


def test_commit_replaces_the_same_partition_only(ports: Ports) -> None:
    other = replace(COMMIT, partition=PartitionKey(TopicId("t1"), Partition(10)), metadata="")
    commit(ports, COMMIT)
    commit(ports, other)
    commit(ports, replace(COMMIT, offset=Offset(3)))
    found = sorted(ports.groups.committed(GROUP), key=lambda item: item.partition.partition)
    assert found == [replace(COMMIT, offset=Offset(3)), other]


def test_groups_do_not_meet(ports: Ports) -> None:
    commit(ports, COMMIT)
    assert list(ports.groups.committed(GroupName("shipping"))) == []


def test_committed_reads_past_one_answer(ports: Ports) -> None:
    commits = [
        replace(COMMIT, partition=PartitionKey(TopicId("t1"), Partition(number)), metadata="x" * 4096)
        for number in range(300)
    ]
    for each in commits:
        commit(ports, each)
    assert sorted(ports.groups.committed(GROUP), key=lambda item: item.partition.partition) == commits


def refused(code: ErrorCode, call: Callable[[], object]) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        call()
    assert caught.value.code is code
    assert not caught.value.maybe_applied
    return caught.value


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
    assert list(ports.groups.committed(GROUP)) == []


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
    commit(ports, COMMIT, Tenure(owner=ME, epoch=1))
    for tenure in (Tenure(owner=ME, epoch=2), Tenure(owner=OTHER, epoch=1)):
        error = refused(
            ErrorCode.LEASE_FENCED,
            lambda tenure=tenure: commit(ports, replace(COMMIT, offset=Offset(8)), tenure),  # type: ignore[misc]
        )
        assert error.facts["lease_epoch"] == 1
    refused(ErrorCode.LEASE_HELD, lambda: commit(ports, replace(COMMIT, offset=Offset(8))))
    assert list(ports.groups.committed(GROUP)) == [COMMIT]
    take(ports, taken, ME)
    refused(ErrorCode.LEASE_FENCED, lambda: commit(ports, COMMIT, Tenure(owner=ME, epoch=1)))
    commit(ports, replace(COMMIT, offset=Offset(6)), Tenure(owner=ME, epoch=2))


def test_commit_of_a_member_is_fenced_where_there_is_no_lease(ports: Ports) -> None:
    refused(ErrorCode.LEASE_FENCED, lambda: commit(ports, COMMIT, Tenure(owner=ME, epoch=1)))
    assert list(ports.groups.leases(GROUP)) == []


def test_commit_goes_back_only_where_it_may(ports: Ports) -> None:
    take(ports, FREE, ME)
    tenure = Tenure(owner=ME, epoch=1)
    for offset in (5, 5, 7):
        commit(ports, replace(COMMIT, offset=Offset(offset)), tenure, may_go_back=False)
    behind = replace(COMMIT, offset=Offset(6))
    error = refused(ErrorCode.OFFSET_BEHIND, lambda: commit(ports, behind, tenure, may_go_back=False))
    assert error.facts["committed_offset"] == 7
    commit(ports, behind, tenure, may_go_back=True)
    assert list(ports.groups.committed(GROUP)) == [behind]


def test_reset_fences_the_owner(ports: Ports) -> None:
    taken = take(ports, FREE, ME)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.groups.reset_lease(GROUP, FREE, COMMIT, FREE.epoch + 1))
    ports.groups.reset_lease(GROUP, taken, COMMIT, taken.epoch + 1)
    [lease] = ports.groups.leases(GROUP)
    assert (lease.owner, lease.epoch, lease.offset) == (None, 2, COMMIT.offset)
    refused(ErrorCode.LEASE_FENCED, lambda: commit(ports, COMMIT, Tenure(owner=ME, epoch=1)))
    commit(ports, replace(COMMIT, offset=Offset(2)))


def test_reset_makes_a_lease_that_was_not_there(ports: Ports) -> None:
    ports.groups.reset_lease(GROUP, FREE, COMMIT, FREE.epoch + 1)
    assert [(lease.epoch, lease.offset) for lease in ports.groups.leases(GROUP)] == [(1, COMMIT.offset)]


def test_delete_lease_spares_one_that_has_changed(ports: Ports) -> None:
    commit(ports, COMMIT)
    [seen] = ports.groups.leases(GROUP)
    taken = take(ports, seen, ME)
    assert not ports.groups.delete_lease(GROUP, seen)
    commit(ports, replace(COMMIT, committed_at_ms=10), Tenure(owner=ME, epoch=1))
    assert not ports.groups.delete_lease(GROUP, taken)
    [now] = ports.groups.leases(GROUP)
    assert ports.groups.delete_lease(GROUP, now)
    assert list(ports.groups.leases(GROUP)) == []


def test_delete_lease_without_commit_spares_one_with(ports: Ports) -> None:
    taken = take(ports, FREE, ME)
    commit(ports, COMMIT, Tenure(owner=ME, epoch=1))
    assert not ports.groups.delete_lease(GROUP, taken)
