"""The group protocol: a member that joins gets its part, and only partitions that must move do, one owner at a time."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import parse_rule
from penstock_core.acls.rule_set import Access, RuleSet
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import parse_subscription
from penstock_core.ids import GroupName, Offset, Partition, PartitionKey
from penstock_core.limits import (
    ACQUIRE_MAX,
    GROUP_CHECK_MS_MAX,
    HEARTBEAT_SEQUENCE_AHEAD_MS_MAX,
    YOUNG_GROUP_MS,
    YOUNG_HEARTBEAT_MS,
)
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.groups import heartbeat as heartbeat_module
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.group_document import alter_group
from penstock_service.groups.heartbeat import HeartbeatRequest, heartbeat
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.support.group_member import GroupMember, holders, settle
from tests.support.refusals import refused
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
    new_topic,
    send,
    with_stores,
)

GROUP = GroupName("billing")
SESSION_MS = 45_000


def test_first_member_is_given_everything_at_once_with_what_was_committed(instance: Instance, a: GroupMember) -> None:
    commit_offsets(instance, "billing", [CommitEntry(topic="orders", partition=2, offset=7, metadata="m")])
    told = a.beat()
    assert (told.session, told.is_complete, told.waiting, told.revoked) == (1, True, 0, [])
    assert (told.heartbeat_after_ms, told.session_timeout_ms) == (YOUNG_HEARTBEAT_MS, SESSION_MS)
    assert a.partitions == [*range(6)]
    given = {lease.partition.partition: (lease.offset, lease.metadata) for lease in told.granted}
    assert given == dict.fromkeys(range(6), (None, "")) | {2: (7, "m")}
    assert len({lease.epoch for lease in told.granted}) == 6


def test_partition_moves_only_after_its_owner_has_said_that_it_let_go(a: GroupMember, b: GroupMember) -> None:
    epoch = a.beat().epoch
    before = {key: lease.epoch for key, lease in a.held.items()}
    a.keeps_revoked = True
    told = b.beat()
    assert (told.epoch, told.granted, told.waiting, told.is_complete) == (epoch + 1, [], 3, False)
    assert told.heartbeat_after_ms == YOUNG_HEARTBEAT_MS
    asked = a.beat()
    assert (asked.is_complete, asked.heartbeat_after_ms, asked.revoked) == (False, 0, ())
    assert len(a.beat().revoked) == 3
    for member in (b, a, b):  # a commits what it has of them, and b waits
        member.beat()
        assert b.held == {}
    a.commit(a.revoked[0].partition, 9)
    a.let_go()
    assert a.beat().is_complete
    told = b.beat()
    assert told.is_complete
    assert all(lease.epoch == before[lease.partition] + 1 for lease in told.granted)
    assert sorted(lease.offset or 0 for lease in told.granted) == [0, 0, 9]
    assert len(holders(a, b)) == 6


def test_member_that_joins_stops_nobody_else(instance: Instance, a: GroupMember, b: GroupMember) -> None:
    settle(a, b)
    before = {key: lease.epoch for member in (a, b) for key, lease in member.held.items()}
    c = GroupMember(instance, "c")
    settle(a, b, c)
    after = {key: lease.epoch for member in (a, b, c) for key, lease in member.held.items()}
    assert sorted(len(member.held) for member in (a, b, c)) == [2, 2, 2]
    moved = {key for key in after if after[key] != before[key]}
    assert moved == set(c.held)
    assert all(after[key] == before[key] + 1 for key in moved)


def test_member_that_leaves_is_replaced_at_once(a: GroupMember, b: GroupMember) -> None:
    settle(a, b)
    b.commit(b.partitions[0], 5)
    b.leave()
    told = [a.beat(), a.beat()][-1]
    assert told.is_complete
    assert a.partitions == [*range(6)]
    assert sorted(lease.offset or 0 for lease in told.granted) == [0, 0, 5]


def test_member_that_dies_is_replaced_when_its_session_ends(
    clock: SteppedClock, a: GroupMember, b: GroupMember
) -> None:
    settle(a, b)
    clock.time_ms += SESSION_MS - 1
    a.beat()
    assert len(a.held) == 3
    clock.time_ms += 2_000
    a.beat()
    settle(a)
    assert a.partitions == [*range(6)]
    number = b.partitions[0]
    refused(ErrorCode.LEASE_FENCED, lambda: b.commit(number, 99))
    refused(ErrorCode.UNKNOWN_MEMBER, b.beat)
    a.commit(number, 1)
    b.forget()
    settle(b, a)
    assert len(holders(a, b)) == 6


def test_zombie_that_wakes_after_its_session_may_go_on_if_nobody_has_noticed(
    clock: SteppedClock, a: GroupMember
) -> None:
    a.beat()
    clock.time_ms += 10 * SESSION_MS
    a.commit(0, 3)
    assert a.held


def test_expired_member_is_replaced_by_one_that_joins(clock: SteppedClock, a: GroupMember, b: GroupMember) -> None:
    a.beat()
    clock.time_ms += SESSION_MS + 1
    b.settle()
    assert b.partitions == [*range(6)]
    assert all(lease.epoch == a.held[key].epoch + 1 for key, lease in b.held.items())


def test_static_member_that_restarts_takes_its_leases_over_without_a_rebalance(
    instance: Instance, a: GroupMember, orders: str
) -> None:
    old = GroupMember(instance, "process-1", instance_id="eu")
    settle(a, old)
    epoch, parts = a.epoch, old.partitions
    new = GroupMember(another_instance(instance), "process-2", instance_id="eu")
    told = new.beat()
    assert (told.epoch, told.is_complete, new.partitions) == (epoch, True, parts)
    assert {lease.epoch - old.held[key].epoch for key, lease in new.held.items()} == {1}
    refused(ErrorCode.MEMBER_FENCED, old.beat)
    refused(ErrorCode.LEASE_FENCED, lambda: old.commit(parts[0], 1))
    refused(ErrorCode.MEMBER_FENCED, old.leave)
    new.commit(parts[0], 1)
    assert a.beat().is_complete


def test_join_that_lands_when_its_session_is_over_is_not_taken_for_that_session(
    clock: SteppedClock, a: GroupMember, b: GroupMember
) -> None:
    late = replace(a, sequence=0)  # its first heartbeat, which the client has sent again meanwhile
    a.sequence = 1
    a.beat()
    clock.time_ms += SESSION_MS + 1
    b.settle()
    late.beat()
    for owned in (frozenset(a.held), None):
        refused(ErrorCode.UNKNOWN_MEMBER, lambda owned=owned: a.beat(owned=owned))  # type: ignore[misc]
    a.forget()
    a.beat()
    assert a.session == a.sequence


def test_group_whose_target_is_gone_is_given_another(instance: Instance, a: GroupMember) -> None:
    a.beat()
    instance.stores.memberships.remove_targets(
        GROUP, 10**10 - 1
    )  # as a slow deletion of an older group of this name does
    b = GroupMember(another_instance(instance), "b")
    a.instance = another_instance(instance)
    settle(a, b)
    assert len(holders(a, b)) == 6


def test_grant_whose_answer_was_lost_comes_again_under_a_new_epoch(a: GroupMember) -> None:
    a.hears_nothing = True
    lost = {lease.partition: lease.epoch for lease in a.beat().granted}
    a.hears_nothing = False
    told = a.beat()
    assert told.is_complete
    assert {lease.partition: lease.epoch - 1 for lease in told.granted} == lost


def test_lease_of_a_lost_answer_moves_on_when_the_target_has_moved_it(a: GroupMember, b: GroupMember) -> None:
    a.hears_nothing = True
    a.beat()
    a.hears_nothing = False
    settle(a, b)
    assert (len(a.held), len(b.held)) == (3, 3)
    holders(a, b)


def test_heartbeat_that_comes_after_a_later_one_changes_nothing(a: GroupMember, b: GroupMember) -> None:
    settle(a, b)
    before = a.instance.stores.memberships.members(GROUP)
    refused(ErrorCode.STALE_HEARTBEAT, lambda: a.beat(sequence=a.sequence - 1))
    refused(ErrorCode.STALE_HEARTBEAT, lambda: a.beat(sequence=a.sequence - 2, owned=frozenset()))
    refused(ErrorCode.STALE_HEARTBEAT, lambda: a.beat(sequence=1, epoch=0, subscription=parse_subscription(["x"], [])))
    assert a.instance.stores.memberships.members(GROUP) == before


def test_new_partitions_and_topics_are_noticed_within_half_a_minute(
    instance: Instance, clock: SteppedClock, orders: str
) -> None:
    member = GroupMember(instance, "m", topics=("later",), patterns=("ord*",))
    member.settle()
    epoch = member.epoch
    alter_topic(instance, "orders", 8, {})
    new_topic(instance, "ord-2", 1)
    new_topic(instance, "later", 1)
    new_topic(instance, "other", 1)
    clock.time_ms += GROUP_CHECK_MS_MAX
    member.beat()
    member.settle()
    assert Counter(lease.topic for lease in member.held.values()) == {"orders": 8, "ord-2": 1, "later": 1}
    assert member.epoch == epoch + 1


def test_topic_that_is_created_again_is_assigned_anew(instance: Instance, clock: SteppedClock, a: GroupMember) -> None:
    a.settle()
    old = set(a.held)
    delete_topic(instance, "orders")
    new_topic(instance, "orders", 2)
    clock.time_ms += GROUP_CHECK_MS_MAX
    a.beat()
    told = a.beat()
    assert set(told.revoked) == old
    a.settle()
    assert a.partitions == [0, 1]
    assert not old & set(a.held)


def test_subscription_can_change(instance: Instance, a: GroupMember, b: GroupMember) -> None:
    new_topic(instance, "bills", 2)
    settle(a, b)
    a.topics = ("bills",)
    with pytest.raises(PenstockError, match="names all partitions"):  # else it would keep what it no longer reads
        a.beat(parse_subscription(["bills"], []))
    a.beat(parse_subscription(["bills"], []), owned=frozenset(a.held))
    settle(a, b)
    assert {lease.topic for lease in a.held.values()} == {"bills"}
    assert b.partitions == [*range(6)]


def test_leases_are_acquired_in_portions(instance: Instance) -> None:
    new_topic(instance, "wide", 2 * ACQUIRE_MAX + 50)
    member = GroupMember(instance, "m", topics=("wide",))
    portions = [member.beat() for _ in range(3)]
    assert [len(told.granted) for told in portions] == [ACQUIRE_MAX, ACQUIRE_MAX, 50]
    assert [told.heartbeat_after_ms for told in portions] == [0, 0, YOUNG_HEARTBEAT_MS]
    assert [told.waiting for told in portions] == [ACQUIRE_MAX + 50, 50, 0]


def test_portion_that_waits_does_not_keep_the_others_back(instance: Instance) -> None:
    new_topic(instance, "wide", 4 * ACQUIRE_MAX)
    slow = GroupMember(instance, "slow", topics=("wide",), keeps_revoked=True)
    for _ in range(4):
        slow.beat()
    gone, new = GroupMember(instance, "gone", topics=("wide",)), GroupMember(instance, "new", topics=("wide",))
    gone.beat()
    new.beat()
    for _ in range(12):
        slow.beat()
        assert not new.beat().granted
    slow.let_go()
    slow.beat()
    for _ in range(4):
        new.beat()
    assert len(new.held) == len(slow.held) - 1 == 133


def test_group_has_the_settings_of_whoever_made_it(instance: Instance, orders: str) -> None:
    first = GroupMember(instance, "a", config={"assignor": "range", "heartbeat_interval_ms": 1_000})
    second = GroupMember(instance, "b", config={"assignor": "round_robin"})
    settle(first, second)
    assert (first.partitions, second.partitions) == ([0, 1, 2], [3, 4, 5])
    assert second.beat().heartbeat_after_ms == 1_000
    refused(ErrorCode.INVALID_CONFIG, GroupMember(instance, "c", group="other", config={"assignor": "x"}).beat)
    assert instance.stores.memberships.get_group(GroupName("other")) is None


def test_group_is_full(instance: Instance, a: GroupMember, b: GroupMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module, "GROUP_MEMBERS_MAX", 2)
    settle(a, b)
    refused(ErrorCode.GROUP_FULL, GroupMember(instance, "c").beat)
    a.forget()
    a.settle()


def test_join_without_subscription_or_with_partitions_is_refused(instance: Instance, orders: str) -> None:
    key = PartitionKey(instance.topic_cache.get("orders").topic_id, Partition(0))
    for how in ({}, {"subscription": parse_subscription(["orders"], []), "owned": frozenset({key})}):
        beat = HeartbeatRequest(member_id="a", sequence=1, epoch=0, **how)  # type: ignore[arg-type]
        refused(ErrorCode.INVALID_REQUEST, lambda beat=beat: heartbeat(instance, "billing", beat))  # type: ignore[misc]
    assert instance.stores.memberships.get_group(GROUP) is None


def test_heartbeat_of_a_member_or_group_that_never_was(instance: Instance, a: GroupMember) -> None:
    refused(ErrorCode.UNKNOWN_MEMBER, lambda: a.beat(epoch=3, session=1, owned=frozenset()))
    a.settle()
    stranger = replace(a, member_id="stranger")
    for owned in (None, frozenset(a.held)):
        refused(ErrorCode.UNKNOWN_MEMBER, lambda owned=owned: stranger.beat(owned=owned))  # type: ignore[misc]
    refused(
        ErrorCode.UNKNOWN_MEMBER, lambda: stranger.beat(parse_subscription(["orders"], []), owned=frozenset(a.held))
    )
    refused(ErrorCode.UNKNOWN_MEMBER, stranger.leave)
    assert [member.name for member in instance.stores.memberships.members(GROUP)] == ["a"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 101, "=x"])
def test_bad_member_and_instance_ids_are_refused(a: GroupMember, name: str) -> None:
    refused(ErrorCode.INVALID_NAME, lambda: a.beat(member_id=name))
    refused(ErrorCode.INVALID_NAME, lambda: a.beat(instance_id=name))


def test_sequence_is_a_count_or_a_clock_and_not_far_ahead_of_it(a: GroupMember, clock: SteppedClock) -> None:
    a.settle()
    newest = clock.now_ms() + HEARTBEAT_SEQUENCE_AHEAD_MS_MAX
    for sequence in (newest + 1, 2**63 - 1):
        refused(ErrorCode.INVALID_REQUEST, partial(a.beat, sequence=sequence))
    a.beat(sequence=newest)


def _watched(instance: Instance, count: int) -> dict[PartitionKey, Offset]:
    """The first partitions, each at its end."""
    topic_id = instance.topic_cache.get("orders").topic_id
    keys = [PartitionKey(topic_id, Partition(number)) for number in range(count)]
    heads = instance.stores.log.heads(keys)
    return {key: heads[key].next_offset for key in keys}


def test_idle_heartbeat_tells_which_watched_partitions_are_still_armed(instance: Instance, a: GroupMember) -> None:
    a.settle()
    waking = with_stores(instance, wake_ups=MemoryWakeUps())
    watched = _watched(instance, 2)
    first, _ = watched
    assert instance.stores.log.arm(first, watched[first], instance.clock.now_ms())[0]
    counts: Counter[str] = Counter()
    a.instance = counted_instance(waking, counts)
    assert a.beat().armed is None
    idle = counts.copy()
    counts.clear()
    told = a.beat(watched=watched)
    assert (told.armed, told.is_complete) == (frozenset({first}), True)
    assert counts - idle == {"log.heads": 1, "memberships.get_target": 1}  # the instance remembers the target
    counts.clear()
    assert a.beat(watched=watched).armed == frozenset({first})
    assert counts - idle == {"log.heads": 1}
    send(instance, "orders", "x")  # it takes the waiter
    assert a.beat(watched=watched).armed == frozenset()


def test_heartbeat_tells_nothing_of_partitions_that_are_not_the_members(instance: Instance, a: GroupMember) -> None:
    a.settle()
    waking = with_stores(instance, wake_ups=MemoryWakeUps())
    create_topic(instance, "secret", 1, {})
    key = PartitionKey(instance.topic_cache.get("secret").topic_id, Partition(0))
    assert instance.stores.log.arm(key, Offset(0), instance.clock.now_ms())[0]
    a.instance = waking
    assert a.beat(watched={key: Offset(0)}).armed == frozenset()


def test_heartbeat_tells_nothing_of_a_topic_that_the_caller_may_no_longer_read(
    instance: Instance, a: GroupMember
) -> None:
    a.settle()
    a.instance = with_stores(instance, wake_ups=MemoryWakeUps())
    watched = _watched(instance, 1)
    [first] = watched
    assert instance.stores.log.arm(first, watched[first], instance.clock.now_ms())[0]
    assert a.beat(watched=watched).armed == frozenset({first})
    denied = RuleSet([parse_rule("*", "read", "topic:orders", "deny")], AclSettings())
    ada = iam_principal("arn:aws:iam::1:user/ada")
    a.access = Access(principal=ada, rules=denied.of(ada.name))
    assert a.beat(watched=watched).armed == frozenset()


def test_heartbeat_counts_when_its_look_fails(instance: Instance, a: GroupMember) -> None:
    a.settle()

    def fail(*_: object) -> None:
        raise UNAVAILABLE

    a.instance = another_instance(instance, log=Intercepted(instance.stores.log, heads=fail), wake_ups=MemoryWakeUps())
    told = a.beat(watched=_watched(instance, 1))
    assert (told.armed, told.is_complete) == (None, True)
    assert a.instance.telemetry.take()[0]["watched_looks_failed"] == 1


def test_members_of_a_young_group_come_soon_unless_it_has_an_interval_of_its_own(
    instance: Instance, clock: SteppedClock, a: GroupMember, b: GroupMember
) -> None:
    settle(a, b)
    alter_group(instance, "billing", {"heartbeat_interval_ms": 4_000})
    settle(a, b)
    assert a.beat().heartbeat_after_ms == 4_000
    alter_group(instance, "billing", {"heartbeat_interval_ms": None})
    for _ in range(3):
        settle(a, b)
        told = a.beat()
        assert (told.heartbeat_after_ms, told.is_young) == (YOUNG_HEARTBEAT_MS, True)
        clock.time_ms += YOUNG_GROUP_MS // 3
    settle(a, b)
    told = a.beat()
    assert (told.heartbeat_after_ms, told.is_young) == (5_000, False)


def test_members_of_a_large_group_do_not_come_so_often(
    instance: Instance, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "YOUNG_GROUP_MEMBERS_MAX", 2)
    members = [GroupMember(instance, name) for name in "abc"]
    settle(*members[:2])
    assert members[0].beat().heartbeat_after_ms == YOUNG_HEARTBEAT_MS
    settle(*members)
    assert [each.beat().heartbeat_after_ms for each in members] == [5_000] * 3
