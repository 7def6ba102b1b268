"""The description of a group tells which partitions wait, and for which one."""

from penstock_service.groups.describe_group import describe_group
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic
from tests.support.group_member import GroupMember
from tests.support.service import new_topic, send


def test_description_shows_what_a_generation_waits_for(instance: Instance) -> None:
    new_topic(instance, "orders", 2, ordering_on_change="wait")
    for number in (0, 1):
        send(instance, "orders", "a", partition=number)
    m = GroupMember(instance, "m")
    m.settle()
    m.commit(0, 1)
    alter_topic(instance, "orders", 1, {})
    send(instance, "orders", "b", partition=2)
    m.settle()
    found = describe_group(instance, "billing").partitions
    assert [(each.partition.partition, each.waits_for, each.lag) for each in found] == [
        (0, None, 0),
        (1, None, None),
        (2, 1, 1),
    ]
    paged = describe_group(instance, "billing", limit=10).partitions
    assert [each.waits_for for each in paged] == [None, None, 1]


def test_nothing_waits_when_the_group_has_read_all(instance: Instance) -> None:
    new_topic(instance, "orders", 1, ordering_on_change="wait")
    alter_topic(instance, "orders", 2, {})
    m = GroupMember(instance, "m")
    m.settle()
    assert [each.waits_for for each in describe_group(instance, "billing").partitions] == [None] * 3
