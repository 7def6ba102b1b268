"""Operators list, describe, alter, reset and delete groups; and offsets expire."""

from collections import Counter
from typing import Any

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.groups.group import GroupConfig
from penstock_core.ids import GroupName
from penstock_core.limits import OFFSETS_RETENTION_MS_DEFAULT, UNLIMITED
from penstock_core.zones.zone_state import Acks
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets, committed_offsets, committed_page
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.describe_group import describe_group, list_groups
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.groups.group_document import alter_group
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.list_offsets import OffsetSpec, ResetOffset
from tests.support.group_member import GroupMember, settle
from tests.support.interleaving import InOrder
from tests.support.refusals import refused
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    filled_topic,
    new_topic,
)

GROUP = GroupName("billing")
SESSION_MS = 45_000
EARLIEST, LATEST = ResetTo(end=OffsetSpec.EARLIEST), ResetTo(end=OffsetSpec.LATEST)


@pytest.fixture
def orders(instance: Instance) -> str:
    """Two partitions; the first has offsets 2 to 10 at times 1,000 to 1,009, the second is empty."""
    name = new_topic(instance, "orders", 2)
    for number in range(10):
        produce(instance, [entry(name, 0, batch(str(number), timestamp_ms=1_000 + number))], Acks.QUORUM)
    truncate(instance, name, {0: 2})
    return name


def commit(instance: Instance, offset: int, group: str = "billing", partition: int = 0) -> None:
    assert commit_offsets(instance, group, [CommitEntry(topic="orders", partition=partition, offset=offset)]) == (None,)


def committed(instance: Instance, group: str = "billing") -> dict[int, int]:
    return {each.partition.partition: each.offset for each in committed_offsets(instance, group, None)}


def new_offsets(results: Any) -> list[Any]:
    return [result.new_offset if isinstance(result, ResetOffset) else result.code.name for _, result in results]


def test_groups_are_listed_whether_they_have_members_or_only_commits(instance: Instance, orders: str) -> None:
    GroupMember(instance, "a", group="joined").settle()
    for group in ("b", "committed", "z"):
        commit(instance, 3, group)
    first, after = list_groups(instance.stores.memberships, 3, "")
    assert [(name, state.member_count if state else None) for name, state in first] == [
        ("b", None),
        ("committed", None),
        ("joined", 1),
    ]
    assert after == "joined"
    assert [name for name, _ in list_groups(instance.stores.memberships, 3, "joined")[0]] == ["z"]
    assert list_groups(instance.stores.memberships, 4, "")[1] is None


def test_description_shows_members_owners_and_lag(instance: Instance, orders: str) -> None:
    a, b = GroupMember(instance, "a"), GroupMember(instance, "b", instance_id="eu")
    a.settle()
    a.keeps_revoked = True
    a.commit(0, 4)
    b.beat()
    found = describe_group(instance, "billing")
    assert found.state is not None
    assert [(member.name, member.subscription.topics) for member in found.members] == [
        ("=eu", ("orders",)),
        ("a", ("orders",)),
    ]
    shown = [
        (
            each.partition.partition,
            each.owner and each.owner.name,
            each.lease.offset,
            each.log_start_offset,
            each.high_watermark,
            each.lag,
        )
        for each in found.partitions
    ]
    assert shown == [(0, "a", 4, 2, 10, 6), (1, "a", None, 0, 0, None)]
    assert {each.assigned_to.name for each in found.partitions if each.assigned_to} == {"a", "=eu"}


def test_description_leaves_out_the_dead_and_deleted_topics(
    instance: Instance, clock: SteppedClock, orders: str
) -> None:
    new_topic(instance, "bills", 1)
    a = GroupMember(instance, "a", topics=("orders", "bills"))
    a.settle()
    clock.time_ms += SESSION_MS + 1
    delete_topic(instance, "bills")
    found = describe_group(instance, "billing")
    assert found.members == []
    assert [(each.topic, each.owner, each.assigned_to) for each in found.partitions] == [("orders", None, None)] * 2
    refused(ErrorCode.UNKNOWN_GROUP, lambda: describe_group(instance, "nobody"))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
def test_pages_of_a_description_join_to_the_whole(instance: Instance, orders: str, limit: int) -> None:
    new_topic(instance, "bills", 12)
    for name in "abc":
        GroupMember(instance, name, topics=("orders", "bills")).beat()
    new_topic(instance, "others", 12)
    commit_offsets(instance, "billing", [CommitEntry(topic="others", partition=10, offset=0)])
    whole = describe_group(instance, "billing")
    assert (len(whole.members), len(whole.partitions), whole.next_after) == (3, 15, None)
    members: list[Any] = []
    partitions: list[Any] = []
    after: str | None = ""
    while after is not None:
        page = describe_group(instance, "billing", after, limit)
        assert page.member_count == 3
        assert len(page.members) + len(page.partitions) <= limit
        members += page.members
        partitions += page.partitions
        after = page.next_after
    assert members == [*whole.members]
    assert sorted(partitions, key=lambda each: (each.topic, each.partition)) == [*whole.partitions]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_of_offsets_join_to_the_whole_and_leave_out_deleted_topics(
    instance: Instance, orders: str, limit: int
) -> None:
    for name in ("bills", "gone"):
        filled_topic(instance, name, 3, records=3)
        entries = [CommitEntry(topic=name, partition=number, offset=number) for number in range(3)]
        assert commit_offsets(instance, "billing", entries) == (None,) * 3
    commit(instance, 3)
    delete_topic(instance, "gone")
    for topic, count in ((None, 4), ("bills", 3)):
        found: list[Any] = []
        after: str | None = ""
        while after is not None:
            page, after = committed_page(instance, "billing", topic, after, limit)
            assert len(page) <= limit
            found += page
        assert len(found) == count
        assert sorted(found, key=lambda each: (each.topic, each.partition.partition)) == committed_offsets(
            instance, "billing", topic
        )


def test_lag_counts_what_can_be_read(instance: Instance, orders: str) -> None:
    commit(instance, 0)
    [partition] = describe_group(instance, "billing").partitions
    assert partition.lag == 8


def test_settings_are_altered_and_another_assignor_moves_partitions(instance: Instance, clock: SteppedClock) -> None:
    for name in ("a", "b"):
        new_topic(instance, name, 1)
    members = [GroupMember(instance, name, topics=("a", "b")) for name in "mn"]
    settle(*members)
    assert [len(member.held) for member in members] == [1, 1]
    assert (
        alter_group(instance, "billing", {"assignor": "range", "heartbeat_interval_ms": 1_000}).epoch
        == members[0].epoch + 1
    )
    settle(*members)
    assert [len(member.held) for member in members] == [2, 0]
    assert members[0].beat().heartbeat_after_ms == 1_000
    epoch = members[0].epoch
    assert alter_group(instance, "billing", {"assignor": None, "heartbeat_interval_ms": None}).config == GroupConfig()
    assert alter_group(instance, "billing", {"session_timeout_ms": 60_000}).epoch == epoch + 1
    refused(ErrorCode.INVALID_CONFIG, lambda: alter_group(instance, "billing", {"assignor": "x"}))


def test_settings_of_a_group_can_be_made_before_anybody_joins(instance: Instance, orders: str) -> None:
    assert alter_group(instance, "billing", {"assignor": "range", "session_timeout_ms": None}).epoch == 0
    member = GroupMember(instance, "a", config={"assignor": "round_robin"})
    member.settle()
    assert alter_group(instance, "billing", {}).config.assignor == "range"


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (EARLIEST, [2, 0]),
        (LATEST, [10, 0]),
        (ResetTo(timestamp_ms=1_005), [5, 0]),
        (ResetTo(timestamp_ms=9_999), [10, 0]),
        (ResetTo(shift_by=-1), [3, "INVALID_REQUEST"]),
        (ResetTo(shift_by=-100), [2, "INVALID_REQUEST"]),
        (ResetTo(shift_by=100), [10, "INVALID_REQUEST"]),
        (ResetTo(offsets={0: 7, 1: 0}), [7, 0]),
        (ResetTo(offsets={0: 1, 1: 1}), ["OFFSET_OUT_OF_RANGE", "OFFSET_OUT_OF_RANGE"]),
        (ResetTo(offsets={0: 10, 2: 0}), [10, "UNKNOWN_PARTITION"]),
    ],
)
def test_offsets_are_reset(instance: Instance, orders: str, to: ResetTo, expected: list[Any]) -> None:
    commit(instance, 4)
    assert new_offsets(reset_offsets(instance, "billing", "orders", to, is_dry_run=True)) == expected
    assert committed(instance) == {0: 4}
    results = reset_offsets(instance, "billing", "orders", to)
    assert new_offsets(results) == expected
    assert [result.old_offset for _, result in results if isinstance(result, ResetOffset)][:1] in ([4], [])
    done = {number: offset for number, offset in enumerate(expected) if isinstance(offset, int)}
    assert committed(instance) == {0: 4, **done}


def test_only_the_partitions_named_are_reset(instance: Instance, orders: str) -> None:
    [(partition, result)] = reset_offsets(instance, "billing", "orders", LATEST, [0])
    assert (partition, result) == (0, ResetOffset(old_offset=None, new_offset=10))  # type: ignore[arg-type]
    assert committed(instance) == {0: 10}
    assert [name for name, _ in list_groups(instance.stores.memberships, 9, "")[0]] == ["billing"]


@pytest.mark.parametrize(
    ("to", "partitions"),
    [(ResetTo(), None), (ResetTo(shift_by=1, timestamp_ms=1), None), (ResetTo(offsets={0: 1}), [0])],
)
def test_reset_that_says_nothing_or_too_much_is_refused(
    instance: Instance, orders: str, to: ResetTo, partitions: list[int] | None
) -> None:
    refused(ErrorCode.INVALID_REQUEST, lambda: reset_offsets(instance, "billing", "orders", to, partitions))
    refused(ErrorCode.UNKNOWN_TOPIC, lambda: reset_offsets(instance, "billing", "missing", EARLIEST))


def test_reset_is_refused_while_members_live_unless_forced(
    instance: Instance, clock: SteppedClock, orders: str
) -> None:
    a = GroupMember(instance, "a")
    a.settle()
    a.commit(0, 9)
    refused(ErrorCode.GROUP_NOT_EMPTY, lambda: reset_offsets(instance, "billing", "orders", EARLIEST))
    assert new_offsets(reset_offsets(instance, "billing", "orders", EARLIEST, is_dry_run=True)) == [2, 0]
    assert a.beat().is_complete
    assert new_offsets(reset_offsets(instance, "billing", "orders", EARLIEST, is_forced=True)) == [2, 0]
    refused(ErrorCode.LEASE_FENCED, lambda: a.commit(0, 10))
    refused(ErrorCode.UNKNOWN_MEMBER, a.beat)
    a.forget()
    a.settle()
    assert {key.partition: lease.offset for key, lease in a.held.items()} == {0: 2, 1: 0}
    clock.time_ms += SESSION_MS + 1
    assert new_offsets(reset_offsets(instance, "billing", "orders", LATEST)) == [10, 0]


def test_member_that_joins_during_a_reset_starts_from_the_new_offsets(instance: Instance, orders: str) -> None:
    commit(instance, 9)
    a = GroupMember(instance, "a")

    class Joining:
        """The member joins just before the first lease is reset."""

        def __getattr__(self, name: str) -> Any:
            if name == "reset_lease" and not a.held:
                a.settle()
            return getattr(instance.stores.groups, name)

    other = another_instance(instance, groups=Joining(), executor=InOrder())
    reset_offsets(other, "billing", "orders", EARLIEST)
    refused(ErrorCode.UNKNOWN_MEMBER, a.beat)
    a.forget()
    a.settle()
    assert {key.partition: lease.offset for key, lease in a.held.items()} == {0: 2, 1: 0}


def test_sleeper_from_before_the_deletion_cannot_commit_for_its_instance(
    instance: Instance, clock: SteppedClock, orders: str
) -> None:
    old = GroupMember(instance, "p-1", instance_id="eu")
    epoch = old.beat().epoch
    clock.time_ms += SESSION_MS + 1
    delete_group(instance, "billing")
    new = GroupMember(another_instance(instance), "p-2", instance_id="eu")
    assert new.beat().epoch != epoch
    assert old.held.keys() == new.held.keys()
    refused(ErrorCode.LEASE_FENCED, lambda: old.commit(0, 9))
    new.commit(0, 1)


def test_group_is_deleted_when_nobody_lives_in_it(instance: Instance, clock: SteppedClock, orders: str) -> None:
    a = GroupMember(instance, "a")
    a.settle()
    a.commit(0, 5)
    refused(ErrorCode.GROUP_NOT_EMPTY, lambda: delete_group(instance, "billing"))
    clock.time_ms += SESSION_MS + 1
    state = instance.stores.memberships.get_group(GROUP)
    assert state is not None
    delete_group(instance, "billing")
    assert instance.stores.memberships.get_group(GROUP) is None
    assert not instance.stores.memberships.members(GROUP)
    assert not instance.stores.groups.leases(GROUP)
    assert not instance.stores.memberships.get_target(GROUP, state.epoch, state.target_id)
    assert list_groups(instance.stores.memberships, 9, "") == ([], None)
    refused(ErrorCode.UNKNOWN_GROUP, lambda: delete_group(instance, "billing"))
    refused(ErrorCode.UNKNOWN_MEMBER, a.beat)
    a.forget()
    a.settle()
    assert [lease.offset for lease in a.held.values()] == [None, None]


def test_offsets_of_simple_consumers_expire_after_their_last_commit(
    instance: Instance, clock: SteppedClock, orders: str
) -> None:
    commit(instance, 1)
    clock.time_ms += OFFSETS_RETENTION_MS_DEFAULT - 1_000
    commit(instance, 2, partition=0, group="other")
    commit(instance, 0, partition=1)
    clock.time_ms += 2_000
    done = expire_offsets(instance, budget_ms=1e9)
    assert (done.groups, done.offsets_expired, done.groups_removed, done.is_finished) == (2, 1, 0, True)
    assert (committed(instance), committed(instance, "other")) == ({1: 0}, {0: 2})
    clock.time_ms += OFFSETS_RETENTION_MS_DEFAULT
    done = expire_offsets(instance, budget_ms=1e9)
    assert (done.offsets_expired, done.groups_removed) == (2, 2)
    assert list_groups(instance.stores.memberships, 9, "") == ([], None)


def test_offsets_of_a_group_stay_while_it_has_members_and_for_as_long_after(
    instance: Instance, clock: SteppedClock, orders: str
) -> None:
    a = GroupMember(instance, "a", config={"offsets_retention_ms": 100_000})
    a.settle()
    a.commit(0, 5)
    for _ in range(10):
        clock.time_ms += SESSION_MS - 5_000
        a.beat()
        assert expire_offsets(instance, budget_ms=1e9).offsets_expired == 0
    clock.time_ms += 1_000_000  # it has crashed; the first run that finds it so begins to count
    assert expire_offsets(instance, budget_ms=1e9).offsets_expired == 0
    clock.time_ms += 99_000
    assert expire_offsets(instance, budget_ms=1e9).offsets_expired == 0
    assert committed(instance) == {0: 5}
    clock.time_ms += 2_000
    done = expire_offsets(instance, budget_ms=1e9)
    assert (done.offsets_expired, done.groups_removed) == (2, 1)
    assert instance.stores.memberships.get_group(GROUP) is None


def test_offsets_stay_for_the_retention_longer_where_readers_empty_the_topic(
    instance: Instance, clock: SteppedClock
) -> None:
    kept_ms = OFFSETS_RETENTION_MS_DEFAULT
    new_topic(instance, "orders", 2, retention="acknowledged", retention_ms=60_000)
    commit(instance, 0)
    clock.time_ms += kept_ms + 60_000
    assert expire_offsets(instance, budget_ms=1e9).offsets_expired == 0
    clock.time_ms += 1
    assert expire_offsets(instance, budget_ms=1e9).groups_removed == 1
    commit(instance, 0)
    alter_topic(instance, "orders", None, {"retention_ms": UNLIMITED})
    clock.time_ms += 1_000 * kept_ms
    assert expire_offsets(instance, budget_ms=1e9).offsets_expired == 0
    delete_topic(instance, "orders")
    new_topic(instance, "orders", retention="acknowledged")
    clock.time_ms += 11_000
    assert expire_offsets(instance, budget_ms=1e9).groups_removed == 1, "of a topic that is gone"


def test_member_that_comes_back_in_time_saves_the_offsets(instance: Instance, clock: SteppedClock, orders: str) -> None:
    a = GroupMember(instance, "a", config={"offsets_retention_ms": 100_000})
    a.settle()
    a.commit(0, 5)
    a.leave()
    clock.time_ms += 99_000
    a.settle()
    clock.time_ms += 2_000
    assert expire_offsets(instance, budget_ms=1e9).offsets_expired == 0
    assert committed(instance) == {0: 5}


def test_offsets_that_are_kept_for_ever_stay(instance: Instance, clock: SteppedClock, orders: str) -> None:
    alter_group(instance, "billing", {"offsets_retention_ms": -1})
    commit(instance, 5)
    for _ in range(3):
        clock.time_ms += 10 * OFFSETS_RETENTION_MS_DEFAULT
        expire_offsets(instance, budget_ms=1e9)
    assert committed(instance) == {0: 5}


def test_expiry_goes_on_where_its_time_was_up(instance: Instance, clock: SteppedClock, orders: str) -> None:
    for number in range(5):
        commit(instance, 1, f"g{number}")
    clock.time_ms += OFFSETS_RETENTION_MS_DEFAULT + 1
    assert not expire_offsets(instance, budget_ms=0).is_finished

    def slow(original: Any, *arguments: Any) -> Any:
        clock.time_ms += 10
        return original(*arguments)

    tired = another_instance(instance, groups=Intercepted(instance.stores.groups, leases=slow))
    counts = [expire_offsets(tired, budget_ms=15) for _ in range(3)]
    assert [done.groups_removed for done in counts] == [2, 2, 1]
    assert [done.is_finished for done in counts] == [False, False, True]
    assert instance.stores.cursors.get("offsets") is None


def test_expiry_of_a_living_group_costs_one_read(instance: Instance, clock: SteppedClock, orders: str) -> None:
    GroupMember(instance, "a").settle()
    counts: Counter[str] = Counter()
    expire_offsets(counted_instance(instance, counts), budget_ms=1e9)
    assert counts == {"memberships.registered": 2, "memberships.get_group": 1}
