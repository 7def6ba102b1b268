"""The checks of a group: what they cost, who makes them, and what they mend. The members beat meanwhile."""

from collections import Counter
from typing import Any

from penstock_core.ids import GroupName, MemberName
from penstock_core.limits import (
    GROUP_CHECK_MS_MAX,
)
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic
from tests.support.group_member import GroupMember, settle
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
)

GROUP = GroupName("billing")
SESSION_MS = 45_000


def test_idle_heartbeat_is_one_read_and_one_write(instance: Instance, a: GroupMember, b: GroupMember) -> None:
    settle(a, b)
    counts: Counter[str] = Counter()
    a.instance = counted_instance(instance, counts)
    for _ in range(10):
        a.beat()
    assert counts == {"memberships.get_group": 10, "memberships.touch_member": 10}


def test_check_is_made_by_one_of_many_and_costs_one_query(
    instance: Instance, clock: SteppedClock, a: GroupMember, b: GroupMember
) -> None:
    settle(a, b)
    counts: Counter[str] = Counter()
    a.instance = b.instance = counted_instance(instance, counts)
    clock.time_ms += GROUP_CHECK_MS_MAX
    for member in (a, b, a, b):
        member.beat()
    assert counts["memberships.touch_member"] == 4
    assert counts["memberships.members"] == 1
    assert counts["memberships.change_group"] == 2
    assert counts["memberships.put_target"] == 0


def test_check_that_fails_costs_no_member_its_answer(instance: Instance, clock: SteppedClock, a: GroupMember) -> None:
    a.settle()
    clock.time_ms += GROUP_CHECK_MS_MAX

    def fail(*_: Any) -> None:
        raise UNAVAILABLE

    a.instance = another_instance(instance, memberships=Intercepted(instance.stores.memberships, members=fail))
    assert a.beat().is_complete
    assert a.instance.telemetry.take()[0]["group_checks_failed"] == 1


def test_check_that_nobody_finished_is_made_again(
    instance: Instance, clock: SteppedClock, a: GroupMember, b: GroupMember
) -> None:
    settle(a, b)
    clock.time_ms += SESSION_MS - 1_000
    a.beat()
    clock.time_ms += 2_000

    def fail(*_: Any) -> None:
        raise UNAVAILABLE

    a.instance = another_instance(instance, memberships=Intercepted(instance.stores.memberships, members=fail))
    a.beat()
    a.instance = another_instance(instance)
    clock.time_ms += 10_000
    a.beat()
    settle(a)
    assert a.partitions == [*range(6)]


def test_next_check_replaces_a_member_when_its_leave_could_not_rebalance(
    instance: Instance, clock: SteppedClock, a: GroupMember, b: GroupMember
) -> None:
    settle(a, b)

    def fail(*_: Any) -> None:
        raise UNAVAILABLE

    b.instance = another_instance(instance, memberships=Intercepted(instance.stores.memberships, put_target=fail))
    b.leave()
    assert b.instance.telemetry.take()[0]["group_rebalances_failed"] == 1
    a.beat()
    assert len(a.held) == 3
    clock.time_ms += GROUP_CHECK_MS_MAX
    a.beat()
    settle(a)
    assert len(a.held) == 6


def test_old_targets_are_removed(instance: Instance, a: GroupMember, b: GroupMember) -> None:
    settle(a, b)
    states = []
    for _ in range(3):
        states.append(instance.stores.memberships.get_group(GROUP))
        b.leave()
        b.forget()
        settle(a, b)
    for state in filter(None, states):
        assert not instance.stores.memberships.get_target(GROUP, state.epoch, state.target_id)


def test_members_session_is_its_own_when_its_heartbeats_name_one(
    instance: Instance, clock: SteppedClock, a: GroupMember, b: GroupMember
) -> None:
    a.beat(session_timeout_ms=6_000)
    b.beat(session_timeout_ms=60_000)
    told = a.beat(session_timeout_ms=6_000)
    assert (told.session_timeout_ms, told.heartbeat_after_ms <= 2_000) == (6_000, True)
    stored = instance.stores.memberships.find_members(GROUP, [MemberName("a"), MemberName("b")])
    assert {name: each.session_timeout_ms for name, each in stored.items()} == {"a": 6_000, "b": 60_000}
    clock.time_ms += 20_000
    assert b.beat(session_timeout_ms=60_000).session_timeout_ms == 60_000
    assert [each.member_id for each in instance.stores.memberships.members(GROUP)] == ["b"]


def test_group_looks_at_its_topics_at_once_when_a_member_asks(instance: Instance, a: GroupMember) -> None:
    a.settle()
    alter_topic(instance, "orders", 8, {})
    assert a.beat().is_complete
    a.beat(looks_at_topics=True)
    a.settle()
    assert a.partitions == [*range(8)]
