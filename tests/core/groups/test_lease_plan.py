"""The decision of one heartbeat about its member's leases."""

from penstock_core.groups.lease import plan_leases
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import ACQUIRE_MAX


def keys(*partitions: int) -> list[PartitionKey]:
    return [PartitionKey(TopicId("t"), Partition(partition)) for partition in partitions]


def test_member_keeps_releases_and_wants_leases() -> None:
    plan = plan_leases(keys(3, 0, 1), keys(1, 2), sequence=1)
    assert plan.revoked == keys(2)
    assert plan.wanted == plan.tried == keys(0, 3)
    assert not plan.leaves_some_untried


def test_nothing_is_planned_when_the_member_holds_its_part() -> None:
    plan = plan_leases(keys(0), keys(0), sequence=1)
    assert (plan.revoked, plan.wanted, plan.tried) == ([], [], [])


def test_every_lease_is_tried_in_turn_when_there_are_too_many() -> None:
    wanted = keys(*range(2 * ACQUIRE_MAX + 1))
    plans = [plan_leases(wanted, [], sequence) for sequence in range(3)]
    assert all(len(plan.tried) == ACQUIRE_MAX and plan.leaves_some_untried for plan in plans)
    assert {key for plan in plans for key in plan.tried} == set(wanted)
