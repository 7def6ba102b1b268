"""Operators delete a group's offsets in one topic; and a group that is made again is on the list again."""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Subscription
from penstock_core.ids import GroupName
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets, committed_offsets
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.delete_offsets import delete_offsets
from penstock_service.groups.describe_group import list_groups
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.topics.list_offsets import OffsetSpec
from tests.support.group_member import GroupMember
from tests.support.refusals import refused
from tests.support.service import UNAVAILABLE, Intercepted, SteppedClock, another_instance, filled_topic, with_stores

GROUP = GroupName("billing")


@pytest.fixture
def topics(instance: Instance) -> None:
    for name in ("orders", "parcels"):
        filled_topic(instance, name, 2)


def commit(instance: Instance, topic: str = "orders", partition: int = 0) -> None:
    entry = CommitEntry(topic=topic, partition=partition, offset=0)
    assert commit_offsets(instance, GROUP, [entry]) == (None,)


def committed(instance: Instance) -> list[tuple[str, int]]:
    return [(each.topic, each.partition.partition) for each in committed_offsets(instance, GROUP, None)]


def listed(instance: Instance) -> list[str]:
    return [name for name, _ in list_groups(instance.stores.memberships, 9, "")[0]]


@pytest.mark.usefixtures("topics")
def test_offsets_of_one_topic_go_and_others_stay(instance: Instance) -> None:
    for topic in ("orders", "parcels"):
        for partition in (0, 1):
            commit(instance, topic, partition)
    assert delete_offsets(instance, GROUP, "orders", [1]) == [(1, 0)]
    assert delete_offsets(instance, GROUP, "orders") == [(0, 0)]
    assert committed(instance) == [("parcels", 0), ("parcels", 1)]
    [(_, gone), (_, error)] = delete_offsets(instance, GROUP, "parcels", [0, 7])
    assert gone == 0
    assert isinstance(error, PenstockError)
    assert error.code is ErrorCode.UNKNOWN_PARTITION
    delete_offsets(instance, GROUP, "parcels")
    assert listed(instance) == []
    refused(ErrorCode.UNKNOWN_GROUP, lambda: delete_offsets(instance, GROUP, "parcels"))
    refused(ErrorCode.UNKNOWN_TOPIC, lambda: delete_offsets(instance, GROUP, "missing"))


@pytest.mark.usefixtures("topics")
def test_deletion_is_refused_while_a_member_reads_the_topic(instance: Instance, clock: SteppedClock) -> None:
    commit(instance, "parcels")
    reader = GroupMember(instance, "a")
    reader.settle()
    reader.commit(0, 0)
    refused(ErrorCode.GROUP_NOT_EMPTY, lambda: delete_offsets(instance, GROUP, "orders"))
    assert delete_offsets(instance, GROUP, "parcels") == [(0, 0)]
    clock.time_ms += 45_001
    assert [0, 0] in [[*each] for each in delete_offsets(instance, GROUP, "orders")]


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("before", ["find_leases", "delete_lease"])
def test_member_that_joins_meanwhile_keeps_its_offsets(instance: Instance, before: str) -> None:
    commit(instance)
    reader = GroupMember(instance, "a")

    def join_first(original: Any, *arguments: Any) -> Any:
        if not reader.held:
            reader.settle()
        return original(*arguments)

    other = with_stores(instance, groups=Intercepted(instance.stores.groups, **{before: join_first}))
    [(_, error)] = delete_offsets(other, GROUP, "orders", [0])
    assert isinstance(error, PenstockError)
    assert error.code is ErrorCode.GROUP_NOT_EMPTY
    assert committed(instance) == [("orders", 0)]


@pytest.mark.usefixtures("topics")
def test_member_that_gives_the_topic_up_keeps_the_offsets_that_it_still_holds(instance: Instance) -> None:
    reader = GroupMember(instance, "a", keeps_revoked=True)
    reader.settle()
    reader.commit(0, 0)
    reader.topics = ("parcels",)
    reader.beat(Subscription(topics=reader.topics), owned=frozenset(reader.held))
    [(_, error)] = delete_offsets(instance, GROUP, "orders", [0])
    assert isinstance(error, PenstockError)
    assert error.code is ErrorCode.GROUP_NOT_EMPTY
    reader.commit(0, 0)
    reader.keeps_revoked = False
    reader.let_go()
    reader.settle()
    assert delete_offsets(instance, GROUP, "orders", [0]) == [(0, 0)]


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("is_another", [False, True])
def test_group_that_is_committed_to_after_its_deletion_is_listed(instance: Instance, *, is_another: bool) -> None:
    commit(instance)
    delete_group(another_instance(instance) if is_another else instance, GROUP)
    assert listed(instance) == []
    commit(instance)
    assert listed(instance) == [GROUP]


@pytest.mark.usefixtures("topics")
def test_group_that_is_made_while_its_deletion_ends_is_listed(instance: Instance) -> None:
    commit(instance)

    def make_first(original: Any, *arguments: Any) -> Any:
        commit(instance)  # the instance knows that the group is on the list
        return original(*arguments)

    other = another_instance(instance, memberships=Intercepted(instance.stores.memberships, unregister=make_first))
    delete_group(other, GROUP)
    assert listed(instance) == [GROUP]


@pytest.mark.usefixtures("topics")
def test_group_that_a_member_makes_while_its_deletion_ends_is_listed(instance: Instance) -> None:
    commit(instance)
    reader = GroupMember(instance, "a")

    def delete_first(original: Any, *arguments: Any) -> Any:
        if arguments[0] is None:
            delete_group(another_instance(instance), GROUP)
        return original(*arguments)

    joining = another_instance(
        instance, memberships=Intercepted(instance.stores.memberships, change_group=delete_first)
    )
    commit(joining)
    reader.instance = joining
    reader.beat()
    assert listed(instance) == [GROUP]


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(("port", "method"), [("memberships", "members"), ("groups", "leases")])
def test_deletion_of_a_group_of_offsets_is_sure_before_its_first_delete(
    instance: Instance, port: str, method: str
) -> None:
    commit(instance)
    calls = 0

    def fail(original: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first call looks whether there is a group without members
            raise UNAVAILABLE
        return original(*arguments)

    failing = with_stores(instance, **{port: Intercepted(getattr(instance.stores, port), **{method: fail})})
    refused(UNAVAILABLE.code, lambda: delete_group(failing, GROUP))
    assert committed(instance) == [("orders", 0)]


def _fail(_original: Any, *_arguments: Any) -> Any:
    raise UNAVAILABLE


@pytest.mark.usefixtures("topics")
def test_error_behind_partitions_that_all_failed_is_sure(instance: Instance) -> None:
    commit(instance)
    failing = with_stores(instance, groups=Intercepted(instance.stores.groups, lease_page=_fail))
    refused(UNAVAILABLE.code, lambda: delete_offsets(failing, GROUP, "orders", [7]))
    with pytest.raises(PenstockError) as caught:
        delete_offsets(failing, GROUP, "orders", [0])
    assert caught.value.maybe_applied


@pytest.mark.usefixtures("topics")
def test_reset_whose_partitions_all_failed_expels_no_member(instance: Instance) -> None:
    failing = with_stores(instance, memberships=Intercepted(instance.stores.memberships, members=_fail))
    to = ResetTo(end=OffsetSpec.EARLIEST)
    [(_, error)] = reset_offsets(failing, GROUP, "orders", to, [7], is_forced=True)
    assert isinstance(error, PenstockError)
    assert error.code is ErrorCode.UNKNOWN_PARTITION
    with pytest.raises(PenstockError) as caught:
        reset_offsets(failing, GROUP, "orders", to, [0, 7], is_forced=True)
    assert caught.value.maybe_applied
