"""A group counts as that of the principal whose call makes it, whichever call it is."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from penstock_core.acls.principal import Principal
from penstock_core.acls.rule_set import Access, PrincipalRules
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupDocument
from penstock_core.ids import GroupName, TransactionalId
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.groups.claim_group import drop_group_claim, list_group
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.delete_group import delete_group, unlist_group
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.groups.group_document import alter_group, put_document
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.topics.list_offsets import OffsetSpec
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import OffsetEntry, commit_transaction
from tests.support.group_member import GroupMember
from tests.support.interleaving import watched
from tests.support.refusals import refused
from tests.support.service import Intercepted, SteppedClock, another_instance, counted_instance, new_topic

ADA, BOB = "arn:aws:iam::1:user/ada", "arn:aws:iam::1:user/bob"
MONTH_MS = 30 * 24 * 3_600_000
SESSION_MS = 45_000


def listed(instance: Instance, principal: str, group: str) -> None:
    list_group(instance, UpdateWindow.open(instance.clock), principal, GroupName(group))


def commit(instance: Instance, group: str) -> None:
    commit_offsets(instance, group, [CommitEntry(topic="orders", partition=0, offset=0)], principal=ADA).all_ok()


_numbers = count()


def transact(instance: Instance, group: str) -> None:
    """Each call by a producer of its own, so that all of them make its first transaction."""
    producer_id = f"{group}-{next(_numbers)}"
    number = begin_transactions(instance, producer_id).number + 1
    producer = TransactionalProducer(transactional_id=TransactionalId(producer_id), epoch=0)
    part = TransactionPart(producer=producer, number=number, entries=(), acks=Acks.QUORUM, principal=ADA)
    commit_transaction(instance, part, [OffsetEntry(group=group, topic="orders", partition=0, offset=0)], 0)


def reset(instance: Instance, group: str) -> None:
    reset_offsets(instance, group, "orders", ResetTo(end=OffsetSpec.LATEST), principal=ADA)


def alter(instance: Instance, group: str) -> None:
    alter_group(instance, group, {"offsets_retention_ms": MONTH_MS - 1}, ADA)


def document(instance: Instance, group: str) -> None:
    put_document(instance, group, None, GroupDocument(protocol_type="connect", member_count=0, data=b""), ADA)


def join(instance: Instance, group: str) -> None:
    rules = PrincipalRules((), allows_by_default=True)
    access = Access(principal=Principal(name=ADA, digest=""), rules=rules)
    GroupMember(instance, "m", group=group, access=access, sequence=next(_numbers)).beat()


Make = Callable[[Instance, str], None]


MAKES: tuple[Make, ...] = (commit, transact, reset, alter, document, join)


def delete(instance: Instance, group: str) -> None:
    """As an operator does: the sessions of its members are over."""
    instance.clock.sleep_ms(SESSION_MS + 1)
    delete_group(instance, group)


def is_there(instance: Instance, group: str) -> bool:
    name, stores = GroupName(group), instance.stores
    return bool(stores.groups.leases(name)) or stores.memberships.get_group(name) is not None


def claims(instance: Instance, principal: str = ADA) -> list[str]:
    return [each.name for each in instance.stores.quotas.claims(principal)]


@pytest.mark.parametrize("make", MAKES)
def test_group_is_claimed_whatever_call_makes_it(instance: Instance, make: Make) -> None:
    new_topic(instance)
    put_quota(instance, "principal", ADA, {"groups_max": 1})
    make(instance, "billing")
    error = refused(ErrorCode.QUOTA_EXCEEDED, lambda: make(instance, "shipping"))
    assert (error.facts["quota"], error.maybe_applied) == ("groups_max", False)
    assert list(instance.stores.memberships.registered("", 10)) == ["billing"]
    assert not instance.stores.groups.leases(GroupName("shipping"))
    assert instance.stores.memberships.get_group(GroupName("shipping")) is None


def test_group_that_is_there_is_claimed_by_nobody_else(instance: Instance) -> None:
    put_quota(instance, "principal", "*", {"groups_max": 1})
    listed(instance, ADA, "billing")
    listed(another_instance(instance), BOB, "billing")
    assert [*instance.stores.quotas.claims(BOB)] == []
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: listed(instance, ADA, "shipping"))


def test_claim_goes_when_another_principal_deletes_the_group(instance: Instance) -> None:
    new_topic(instance)
    commit(instance, "billing")
    delete_group(another_instance(instance), "billing")
    assert [*instance.stores.quotas.claims(ADA)] == []


def test_claim_goes_when_the_group_expires(instance: Instance, clock: SteppedClock) -> None:
    alter(instance, "billing")
    clock.time_ms += MONTH_MS
    assert expire_offsets(another_instance(instance), budget_ms=1_000).groups_removed == 1
    assert [*instance.stores.quotas.claims(ADA)] == []


def test_claim_of_a_group_that_was_made_anew_stays(instance: Instance, clock: SteppedClock) -> None:
    """The group comes back right after its deletion has taken it off the list."""
    new_topic(instance)
    commit(instance, "billing")

    def made_anew(unregister: Callable[[GroupName], object], group: GroupName) -> object:
        found = unregister(group)
        clock.time_ms += 1
        listed(another_instance(instance), ADA, "billing")
        return found

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, unregister=made_anew))
    delete_group(racing, "billing")
    assert [each.name for each in instance.stores.quotas.claims(ADA)] == ["billing"]


@pytest.mark.parametrize("make", MAKES)
def test_group_that_another_instance_has_deleted_is_refused_at_the_quota(instance: Instance, make: Make) -> None:
    """The instance that makes it anew has made it before, and could think that it is there still."""
    new_topic(instance)
    put_quota(instance, "principal", ADA, {"groups_max": 1})
    make(instance, "billing")
    other = another_instance(instance)
    delete(other, "billing")
    make(other, "shipping")
    error = refused(ErrorCode.QUOTA_EXCEEDED, lambda: make(instance, "billing"))
    assert error.facts["quota"] == "groups_max"
    assert not is_there(instance, "billing")
    assert claims(instance) == list(instance.stores.memberships.registered("", 10)) == ["shipping"]


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("make", MAKES)
def test_group_is_listed_and_claimed_wherever_a_deletion_comes_between(make: Make, is_new: bool) -> None:
    """The whole deletion runs before the nth storage call of the call that makes the group."""
    place = 0
    while _interrupted(place, make, is_new=is_new):
        place += 1
    assert place > 0


def _interrupted(place: int, make: Make, *, is_new: bool) -> bool:
    """False if there is no such call any more."""
    instance = memory_instance(clock=SteppedClock())
    new_topic(instance)
    if not is_new:
        make(instance, "billing")
        instance.clock.sleep_ms(SESSION_MS + 1)
    is_reached = False

    def interrupt(number: int) -> None:
        nonlocal is_reached
        if number == place:
            is_reached = True
            instance.clock.sleep_ms(1)
            with suppress(PenstockError):
                delete_group(another_instance(instance), "billing")

    with suppress(PenstockError):
        make(watched(instance, interrupt), "billing")
    _expect_covered(instance, f"deleted before call {place}")
    return is_reached


@pytest.mark.parametrize("make", MAKES)
def test_group_is_listed_and_claimed_wherever_it_is_made_during_its_deletion(make: Make) -> None:
    for place in range(30):
        instance = memory_instance(clock=SteppedClock())
        new_topic(instance)
        make(instance, "billing")
        instance.clock.sleep_ms(SESSION_MS + 1)

        def interrupt(number: int, place: int = place, instance: Instance = instance) -> None:
            if number == place:
                instance.clock.sleep_ms(1)
                with suppress(PenstockError):
                    make(another_instance(instance), "billing")

        with suppress(PenstockError):
            delete_group(watched(instance, interrupt), "billing")
        _expect_covered(instance, f"made before call {place} of the deletion")


def _expect_covered(instance: Instance, when: str) -> None:
    if is_there(instance, "billing"):
        assert list(instance.stores.memberships.registered("", 10)) == ["billing"], when
        assert claims(instance) == ["billing"], when


def test_group_that_was_deleted_while_it_was_made_counts_above_the_quota(instance: Instance) -> None:
    """Its commit has found the group when a deletion, and another group, come between. The next group is refused."""
    new_topic(instance, partitions=2)
    put_quota(instance, "principal", ADA, {"groups_max": 1})
    commit(instance, "billing")

    def looked(is_registered: Callable[[GroupName], bool], group: GroupName) -> bool:
        found = is_registered(group)
        if not is_there(instance, "shipping"):
            delete_group(another_instance(instance), "billing")
            commit(another_instance(instance), "shipping")
        return found

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, is_registered=looked))
    entry = CommitEntry(topic="orders", partition=1, offset=0)
    commit_offsets(racing, "billing", [entry], principal=ADA).all_ok()
    assert sorted(claims(instance)) == ["billing", "shipping"]
    assert sorted(instance.stores.memberships.registered("", 10)) == ["billing", "shipping"]
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: commit(instance, "returns"))
    delete_group(instance, "shipping")
    refused(ErrorCode.QUOTA_EXCEEDED, lambda: commit(instance, "returns"))
    delete_group(instance, "billing")
    commit(instance, "returns")


def test_group_is_claimed_again_if_one_deletion_drops_the_claim_and_another_lists_it(instance: Instance) -> None:
    """The second deletion finds the commit, and the first one, which was slower, did not."""
    new_topic(instance)
    memberships, name = instance.stores.memberships, GroupName("billing")

    def between(commit_lease: Callable[..., Any], *arguments: Any) -> Any:
        claim = memberships.unregister(name)
        done = commit_lease(*arguments)
        unlist_group(instance, name)
        if claim is not None:
            drop_group_claim(instance, name, claim)
        return done

    commit(another_instance(instance, groups=Intercepted(instance.stores.groups, commit=between)), name)
    _expect_covered(instance, "made during two deletions")


def test_commit_that_makes_no_group_answers_its_other_offsets(instance: Instance) -> None:
    """A deletion comes between the offset that is there and the one that is new; the principal has another group."""
    new_topic(instance, partitions=2)
    put_quota(instance, "principal", ADA, {"groups_max": 1})
    commit(instance, "billing")

    def looked(is_registered: Callable[[GroupName], bool], group: GroupName) -> bool:
        delete_group(another_instance(instance), "billing")
        return is_registered(group) or put_quota(instance, "principal", ADA, {"groups_max": 0}) is None

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, is_registered=looked))
    entries = [CommitEntry(topic="orders", partition=number, offset=0) for number in range(2)]
    first, second = commit_offsets(racing, "billing", entries, principal=ADA)
    assert first is None
    assert second is not None
    assert second.code is ErrorCode.QUOTA_EXCEEDED
    assert not is_there(instance, "billing")


def test_first_lease_of_a_member_whose_group_was_deleted_is_listed(instance: Instance) -> None:
    """The member slept between its heartbeat's writes. An operator finds the group, and may delete it again."""
    new_topic(instance)

    def slept(find_leases: Callable[..., object], *arguments: object) -> object:
        found = find_leases(*arguments)
        delete(another_instance(instance), "billing")
        return found

    join(another_instance(instance, groups=Intercepted(instance.stores.groups, find_leases=slept)), "billing")
    assert instance.stores.groups.leases(GroupName("billing"))
    assert list(instance.stores.memberships.registered("", 10)) == claims(instance) == ["billing"]
    delete_group(another_instance(instance), "billing")
    assert claims(instance) == []


def test_known_group_costs_a_commit_no_call(instance: Instance) -> None:
    """Wherever it was made: also an instance that has never heard of it reads no list."""
    new_topic(instance)
    commit(instance, "billing")
    for known in (instance, another_instance(instance)):
        counts: Counter[str] = Counter()
        counted = counted_instance(known, counts)
        commit(counted, "billing")
        assert counts == {"topics.get": 1, "log.heads": 1, "groups.commit": 1}


def test_known_group_costs_a_transaction_no_call(instance: Instance) -> None:
    new_topic(instance)
    commit(instance, "billing")
    counts: Counter[str] = Counter()
    transact(counted_instance(instance, counts), "billing")
    assert counts == {
        **{"topics.get": 1, "zone_states.get": 1},
        **{"transactions.get": 1, "transactions.begin_epoch": 1, "transactions.commit": 1},
    }
