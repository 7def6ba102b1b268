"""A group reads a generation of partitions once it has committed the ones before (docs/protocol/partitions)."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from penstock_core.ids import GroupName, PartitionKey
from penstock_core.limits import GROUP_CHECK_MS_MAX, GROUP_CHECK_MS_MIN, GROUP_PATIENCE
from penstock_service.groups.rebalance import readable_ends
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic, truncate
from penstock_service.topics.list_offsets import OffsetSpec
from tests.support.group_member import GroupMember, settle
from tests.support.service import Intercepted, SteppedClock, another_instance, counted_instance, new_topic, send

TOPIC = "waiting"
_SOON_MS = 2 * GROUP_CHECK_MS_MAX // GROUP_PATIENCE


@pytest.fixture
def m(instance: Instance) -> GroupMember:
    new_topic(instance, TOPIC, 2, ordering_on_change="wait")
    send(instance, TOPIC, "a", "b", partition=0)
    return GroupMember(instance, "m", topics=(TOPIC,))


def look_again(clock: SteppedClock, *members: GroupMember, after_ms: int = _SOON_MS) -> None:
    clock.time_ms += after_ms
    for each in members:
        each.beat()
    settle(*members)


def test_generation_waits_until_the_group_has_committed_the_one_before(
    instance: Instance, clock: SteppedClock, m: GroupMember
) -> None:
    m.settle()
    alter_topic(instance, TOPIC, 3, {})
    look_again(clock, m, after_ms=GROUP_CHECK_MS_MAX)
    assert m.partitions == [0, 1]
    m.commit(0, 1, TOPIC)
    look_again(clock, m)
    assert m.partitions == [0, 1]
    m.commit(0, 2, TOPIC)
    look_again(clock, m)
    assert m.partitions == [0, 1, 2, 3, 4]
    assert all(m.held[key].offset is None for key in m.held if key.partition >= 2)


def test_later_generations_wait_one_after_the_other(instance: Instance, clock: SteppedClock, m: GroupMember) -> None:
    alter_topic(instance, TOPIC, 1, {})
    send(instance, TOPIC, "c", partition=2)
    alter_topic(instance, TOPIC, 2, {})
    m.settle()
    assert m.partitions == [0, 1]
    m.commit(0, 2, TOPIC)
    look_again(clock, m)
    assert m.partitions == [0, 1, 2]
    m.commit(2, 1, TOPIC)
    look_again(clock, m)
    assert m.partitions == [0, 1, 2, 3, 4]


def test_generation_whose_records_were_removed_holds_up_no_group(instance: Instance, m: GroupMember) -> None:
    alter_topic(instance, TOPIC, 3, {})
    truncate(instance, TOPIC, {0: 2})
    m.settle()
    assert m.partitions == [0, 1, 2, 3, 4]


def test_static_member_reads_old_generations_first_when_its_group_was_reset(
    instance: Instance, clock: SteppedClock, m: GroupMember
) -> None:
    m.instance_id = "static"
    m.settle()
    m.commit(0, 2, TOPIC)
    alter_topic(instance, TOPIC, 3, {})
    look_again(clock, m, after_ms=GROUP_CHECK_MS_MAX)
    assert m.partitions == [0, 1, 2, 3, 4]
    reset_offsets(instance, "billing", TOPIC, ResetTo(end=OffsetSpec.EARLIEST), is_forced=True)
    m.forget()
    m.settle()
    assert m.partitions == [0, 1]


def test_member_that_joins_again_during_a_reset_reads_old_generations_first(
    instance: Instance, clock: SteppedClock, m: GroupMember
) -> None:
    m.settle()
    m.commit(0, 2, TOPIC)
    alter_topic(instance, TOPIC, 3, {})
    look_again(clock, m, after_ms=GROUP_CHECK_MS_MAX)

    def remove(original: Callable[..., bool], *arguments: object) -> bool:
        is_removed = original(*arguments)
        m.forget()
        m.settle()
        return is_removed

    resetting = another_instance(instance, memberships=Intercepted(instance.stores.memberships, remove_member=remove))
    reset_offsets(resetting, "billing", TOPIC, ResetTo(end=OffsetSpec.EARLIEST), is_forced=True)
    assert m.partitions == [0, 1]


def test_generation_goes_to_another_member_only_after_the_commit(
    instance: Instance, clock: SteppedClock, m: GroupMember
) -> None:
    other = GroupMember(another_instance(instance), "n", topics=(TOPIC,))
    settle(m, other)
    alter_topic(instance, TOPIC, 3, {})
    look_again(clock, m, other, after_ms=GROUP_CHECK_MS_MAX)
    assert sorted([*m.partitions, *other.partitions]) == [0, 1]
    reader = m if 0 in m.partitions else other
    reader.commit(0, 2, TOPIC)
    look_again(clock, m, other)
    assert sorted([*m.partitions, *other.partitions]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("committed", [1, 2])
def test_generation_is_late_when_a_group_that_has_committed_begins_anew(
    instance: Instance, clock: SteppedClock, m: GroupMember, committed: int
) -> None:
    m.settle()
    m.commit(0, committed, TOPIC)
    alter_topic(instance, TOPIC, 3, {})
    m.leave()
    m.settle()
    if committed < 2:
        m.commit(0, 2, TOPIC)
        look_again(clock, m)
    assert m.partitions == [0, 1, 2, 3, 4]
    assert sorted(key.partition for key in m.late) == [2, 3, 4]


def test_generation_is_not_late_when_the_group_is_new(instance: Instance, clock: SteppedClock, m: GroupMember) -> None:
    alter_topic(instance, TOPIC, 3, {})
    m.settle()
    m.commit(0, 2, TOPIC)
    look_again(clock, m)
    assert m.partitions == [0, 1, 2, 3, 4]
    assert not m.late


def test_topics_with_one_generation_cost_nothing(instance: Instance, m: GroupMember) -> None:
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    topic = counted.topic_cache.read_through(TOPIC)
    counts.clear()
    assert readable_ends(counted, GroupName("billing"), [topic]) == {}
    assert not counts


def test_group_that_waits_is_read_from_the_generation_that_it_reads(instance: Instance, m: GroupMember) -> None:
    for partitions in (1, 2, 1):
        alter_topic(instance, TOPIC, partitions, {})
    topic, group = instance.topic_cache.read_through(TOPIC), GroupName("billing")
    asked: list[PartitionKey] = []

    def heads(original: Callable[..., object], keys: Sequence[PartitionKey]) -> object:
        asked.extend(keys)
        return original(keys)

    watched = another_instance(instance, log=Intercepted(instance.stores.log, heads=heads))
    assert readable_ends(watched, group, [topic], {topic.topic_id: 2})[topic.topic_id].end == 2
    assert [key.partition for key in asked] == [0, 1]
    truncate(instance, TOPIC, {0: 2})
    assert readable_ends(watched, group, [topic], {topic.topic_id: 2})[topic.topic_id].end == topic.partitions
    asked.clear()
    assert readable_ends(watched, group, [topic])[topic.topic_id].end == topic.partitions
    assert len(asked) == topic.first_writable


def test_group_that_waits_long_is_checked_less_often(instance: Instance, clock: SteppedClock, m: GroupMember) -> None:
    m.settle()
    alter_topic(instance, TOPIC, 3, {})
    look_again(clock, m, after_ms=GROUP_CHECK_MS_MAX)
    waits: list[int] = []
    for _ in range(60):
        state = instance.stores.memberships.get_group(GroupName("billing"))
        assert state is not None
        waits.append(state.next_check_ms - clock.now_ms())
        look_again(clock, m, after_ms=max(0, waits[-1]))
    assert waits[0] <= 3_000
    assert all(GROUP_CHECK_MS_MIN <= each <= GROUP_CHECK_MS_MAX for each in waits)
    assert waits[-1] > 5 * GROUP_CHECK_MS_MIN
    m.commit(0, 2, TOPIC)
    look_again(clock, m, after_ms=GROUP_CHECK_MS_MAX)
    assert m.partitions == [0, 1, 2, 3, 4]
