"""What every GroupStore does, in memory and on DynamoDB."""

from dataclasses import replace

from penstock_core.ids import GroupName, Offset, Partition, TopicId, TopicName
from penstock_core.items import CommittedOffset
from penstock_core.keys import PartitionKey
from tests.contract.conftest import Ports

GROUP = GroupName("billing")
COMMIT = CommittedOffset(
    topic=TopicName("orders"),
    partition=PartitionKey(TopicId("t1"), Partition(0)),
    offset=Offset(5),
    metadata="m",
    committed_at_ms=9,
)


def test_committed_is_empty_for_a_group_that_never_committed(ports: Ports) -> None:
    assert list(ports.groups.committed(GROUP)) == []


def test_commit_replaces_the_same_partition_only(ports: Ports) -> None:
    other = replace(COMMIT, partition=PartitionKey(TopicId("t1"), Partition(10)), metadata="")
    ports.groups.commit(GROUP, COMMIT)
    ports.groups.commit(GROUP, other)
    ports.groups.commit(GROUP, replace(COMMIT, offset=Offset(3)))
    found = sorted(ports.groups.committed(GROUP), key=lambda item: item.partition.partition)
    assert found == [replace(COMMIT, offset=Offset(3)), other]


def test_groups_do_not_meet(ports: Ports) -> None:
    ports.groups.commit(GROUP, COMMIT)
    assert list(ports.groups.committed(GroupName("shipping"))) == []


def test_committed_reads_past_one_answer(ports: Ports) -> None:
    commits = [
        replace(COMMIT, partition=PartitionKey(TopicId("t1"), Partition(number)), metadata="x" * 4096)
        for number in range(300)
    ]
    for commit in commits:
        ports.groups.commit(GROUP, commit)
    assert sorted(ports.groups.committed(GROUP), key=lambda item: item.partition.partition) == commits
