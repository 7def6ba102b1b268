"""Commits that count: of the owner of a lease, or of a consumer outside of the group where no member owns it.

A group that a call has made stays on the list and under its claim, whichever answers are lost during a deletion.

The description of a group tells which partitions wait, and for which one.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import parse_subscription
from penstock_core.groups.lease import SeenCommit
from penstock_core.ids import GroupName, Partition
from penstock_core.limits import CLAIM_GRACE_MS
from penstock_service.groups.claim_group import list_group
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.describe_group import describe_group
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.topics.alter_topic import alter_topic
from tests.service.groups.test_claim_group import ADA, BOB, MONTH_MS, alter, claims, commit, document, is_there
from tests.support.group_member import GroupMember, settle
from tests.support.refusals import refused
from tests.support.restoring import jump
from tests.support.service import Intercepted, SteppedClock, another_instance, counted_instance, new_topic, send

SESSION_MS = 45_000


def test_simple_consumer_commits_where_no_member_owns_the_lease(
    instance: Instance, clock: SteppedClock, a: GroupMember
) -> None:
    entries = [CommitEntry(topic="orders", partition=0, offset=4)]
    assert commit_offsets(instance, "billing", entries) == (None,)
    a.settle()
    [error] = commit_offsets(instance, "billing", entries)
    assert error is not None
    assert error.code is ErrorCode.LEASE_HELD
    clock.time_ms += SESSION_MS + 1
    assert commit_offsets(instance, "billing", entries) == (None,)
    refused(ErrorCode.LEASE_FENCED, lambda: a.commit(0, 9))
    refused(ErrorCode.UNKNOWN_MEMBER, a.beat)


def test_simple_consumer_commits_where_the_owner_holds_the_partition_no_more(
    instance: Instance, a: GroupMember
) -> None:
    new_topic(instance, "bills", 1)
    a.settle()
    a.beat(parse_subscription(["bills"], []), owned=frozenset(a.held))
    entries = [CommitEntry(topic="orders", partition=0, offset=4)]
    a.keeps_revoked = True
    a.settle()
    assert commit_offsets(instance, "billing", entries) == (None,)


def test_commit_with_lease_epochs_names_its_member_and_the_other_way_round(instance: Instance, a: GroupMember) -> None:
    a.settle()
    entry = CommitEntry(topic="orders", partition=0, offset=4)
    for entries, member in (([replace(entry, lease_epoch=1)], None), ([entry], "a")):
        [error] = commit_offsets(instance, "billing", entries, member)
        assert error is not None
        assert error.code is ErrorCode.INVALID_REQUEST
    refused(ErrorCode.INVALID_REQUEST, lambda: commit_offsets(instance, "billing", [entry], None, "eu"))


def test_commit_of_many_tells_which_did_not_count(instance: Instance, a: GroupMember, b: GroupMember) -> None:
    settle(a, b)
    counts: Counter[str] = Counter()
    epochs = {key.partition: lease.epoch for key, lease in a.held.items()}
    entries = [
        CommitEntry(topic="orders", partition=number, offset=1, lease_epoch=epochs.get(number, 1))
        for number in map(Partition, range(6))
    ]
    results = commit_offsets(counted_instance(a.instance, counts), "billing", entries, "a")
    assert [error is None for error in results] == [number in a.partitions for number in range(6)]
    assert {error.code for error in results if error} == {ErrorCode.LEASE_FENCED}
    assert counts == {"groups.commit": 6, "topics.get": 1}


def test_owner_commits_back_only_from_the_commit_that_it_names(a: GroupMember) -> None:
    a.settle()
    a.commit(0, 9)
    behind = refused(ErrorCode.OFFSET_BEHIND, lambda: a.commit(0, 8))
    seen = SeenCommit(offset=behind.facts["committed_offset"], committed_at_ms=behind.facts["committed_at_ms"])
    a.commit(0, 8, back_from=seen)
    a.commit(0, 8, back_from=seen)  # once more, as after a lost answer
    a.instance.clock.sleep_ms(1)
    a.commit(0, 9)
    refused(ErrorCode.OFFSET_BEHIND, lambda: a.commit(0, 8, back_from=seen))  # a twin that comes late


def test_commit_of_an_owner_within_a_jump_is_refused_and_costs_one_read_in_restored_topics_alone(
    instance: Instance, a: GroupMember
) -> None:
    a.settle()
    counts: Counter[str] = Counter()

    def commit(offset: int) -> PenstockError | None:
        entry = CommitEntry(topic="orders", partition=0, offset=offset, lease_epoch=a.held[first].epoch)
        [error] = commit_offsets(counted_instance(a.instance, counts), "billing", [entry], "a")
        return error

    first = next(key for key in a.held if key.partition == 0)
    assert commit(15) is None
    assert counts == {"groups.commit": 1, "topics.get": 1}
    jump(instance, *[200] * 6)
    error = commit(500)
    assert error is not None
    assert (error.code, error.facts["to"]) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1_200)
    assert commit(1_200) is None
    assert counts["log.heads"] == 2


LOST = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer", maybe_applied=True)


def listed(instance: Instance) -> list[GroupName]:
    return [*instance.stores.memberships.registered("", 10)]


def test_group_that_comes_back_while_it_is_removed_is_listed(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    commit(instance, "billing")
    clock.time_ms += 24 * MONTH_MS

    def lost(unregister: Callable[[GroupName], object], group: GroupName) -> object:
        commit(another_instance(instance), "billing")
        unregister(group)
        raise LOST

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, unregister=lost))
    assert expire_offsets(racing, budget_ms=1_000).failures == 1
    assert is_there(instance, "billing")
    assert listed(instance) == ["billing"]


@pytest.mark.parametrize("make", [alter, document])
def test_group_whose_first_write_lost_its_answer_behind_a_deletion_is_listed(
    make: Callable[[Instance, str], object], instance: Instance
) -> None:
    new_topic(instance)

    def lose(write: Callable[..., object], *arguments: Any) -> object:
        with suppress(PenstockError):
            delete_group(another_instance(instance), "billing")
        write(*arguments)
        raise LOST

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, change_group=lose))
    with pytest.raises(PenstockError):
        make(racing, "billing")
    assert is_there(instance, "billing")
    assert (listed(instance), claims(instance)) == (["billing"], ["billing"])


def test_claim_counts_no_longer_once_another_principal_has_the_name(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    put_quota(instance, "principal", ADA, {"groups_max": 1})

    def lost(*_: object) -> object:
        raise LOST

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, register=lost))
    with pytest.raises(PenstockError):
        commit(racing, "billing")
    list_group(instance, UpdateWindow.open(instance.clock), BOB, GroupName("billing"))
    clock.sleep_ms(CLAIM_GRACE_MS * 10)
    commit(another_instance(instance), "shipping")
    assert claims(instance) == ["shipping"]


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
