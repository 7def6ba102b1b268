"""Groups, share groups and subscriptions on partitions that drain, go, and come back (docs/protocol/partitions)."""

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import GroupName, Partition
from penstock_core.limits import DRAIN_MS_MIN, GROUP_CHECK_MS_MAX, LOG_START_GRACE_MS
from penstock_core.push.batch import Answer, Answered, PushBatch
from penstock_service.groups.describe_group import describe_group
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.push.look import look
from penstock_service.retention.retain import retain
from penstock_service.topics.alter_topic import alter_topic, truncate
from penstock_service.topics.list_offsets import OffsetSpec
from tests.service.push.parallel.test_deliver_parallel import parallel
from tests.support.group_member import GroupMember, settle
from tests.support.push_deliveries import Deliveries
from tests.support.service import SteppedClock, another_instance, head_of, new_topic, send

GROUP = GroupName("billing")


def retire(instance: Instance, clock: SteppedClock, topic: str, partition: int) -> None:
    """Truncates the last partition, which drains, and lets retention take it away."""
    truncate(instance, topic, {partition: head_of(instance, topic, partition).next_offset})
    clock.time_ms += DRAIN_MS_MIN
    for _ in range(3):
        retain(instance, budget_ms=60_000.0)
        clock.time_ms += 2 * LOG_START_GRACE_MS
    assert instance.topic_cache.read_through(topic).partitions == partition


@pytest.fixture
def member(instance: Instance) -> GroupMember:
    new_topic(instance, "orders", 2)
    send(instance, "orders", "a", "b", partition=1)
    return GroupMember(instance, "m")


def test_member_reads_a_draining_partition_and_commits_it(instance: Instance, member: GroupMember) -> None:
    member.settle()
    alter_topic(instance, "orders", 1, {})
    member.commit(1, 1)
    other = GroupMember(another_instance(instance), "n")
    settle(member, other)
    assert sorted([*member.partitions, *other.partitions]) == [0, 1]
    [holder] = [each for each in (member, other) if 1 in each.partitions]
    holder.commit(1, 2)
    committed = {each.partition.partition: each.offset for each in instance.stores.groups.leases(GROUP)}
    assert committed[Partition(1)] == 2


def test_group_lets_go_of_a_partition_that_went_and_goes_on_where_it_was_when_it_comes_back(
    instance: Instance, clock: SteppedClock, member: GroupMember
) -> None:
    member.settle()
    member.commit(1, 2)
    alter_topic(instance, "orders", 1, {})
    retire(instance, clock, "orders", 1)
    member.forget()
    member.settle()
    assert member.partitions == [0]
    assert [each.lag for each in describe_group(instance, "billing").partitions if each.lag] == []
    alter_topic(instance, "orders", 2, {})
    send(instance, "orders", "c", partition=1)
    clock.time_ms += GROUP_CHECK_MS_MAX
    member.beat()
    member.settle()
    [lease] = [each for key, each in member.held.items() if key.partition == 1]
    assert lease.offset == 2, "offsets go on, so it reads c next"


def test_offsets_of_a_draining_partition_can_be_reset(instance: Instance, member: GroupMember) -> None:
    alter_topic(instance, "orders", 1, {})
    results = dict(reset_offsets(instance, "billing", "orders", ResetTo(end=OffsetSpec.LATEST)))
    found = results[Partition(1)]
    assert not isinstance(found, PenstockError)
    assert found.new_offset == 2


def deliveries_in(mode: str, partitions: int) -> Deliveries:
    return parallel(partitions) if mode == "parallel" else Deliveries(partitions=partitions)


def delivered(deliveries: Deliveries) -> list[tuple[int, bytes | None]]:
    """Makes the target note what it gets."""
    found: list[tuple[int, bytes | None]] = []

    def answer(batch: PushBatch) -> Answer:
        found.extend((each.key.partition, each.record.value) for each in batch.records)
        return Answered()

    deliveries.answer = answer
    return found


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_subscription_delivers_draining_partitions_and_those_that_come_back(mode: str) -> None:
    deliveries = deliveries_in(mode, 2)
    found = delivered(deliveries)
    deliveries.append("old", partition=1)
    alter_topic(deliveries.instance, "orders", 1, {})
    deliveries.run()
    retire(deliveries.instance, deliveries.clock, "orders", 1)
    deliveries.append("first", partition=0)
    deliveries.run()
    alter_topic(deliveries.instance, "orders", 2, {})
    deliveries.append("again", partition=1)
    deliveries.run()
    assert found == [(1, b"old"), (0, b"first"), (1, b"again")]


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_subscription_delivers_a_generation_that_opens_while_it_waits(mode: str) -> None:
    deliveries = deliveries_in(mode, 1)
    found = delivered(deliveries)
    alter_topic(deliveries.instance, "orders", None, {"ordering_on_change": "wait"})
    deliveries.append("old")
    deliveries.run()
    alter_topic(deliveries.instance, "orders", 2, {})
    deliveries.append("new", partition=2)
    deliveries.run()
    assert found == [(0, b"old"), (2, b"new")]


def test_look_meets_a_partition_that_went(clock: SteppedClock) -> None:
    deliveries = Deliveries(partitions=2)
    deliveries.append("old", partition=1)
    alter_topic(deliveries.instance, "orders", 1, {})
    deliveries.run()
    retire(deliveries.instance, deliveries.clock, "orders", 1)
    look(deliveries.instance, budget_ms=60_000.0)
    assert not deliveries.queue.messages
