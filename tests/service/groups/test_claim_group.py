"""A group counts as that of the principal whose call makes it, whichever call it is."""

from collections.abc import Callable

import pytest

from penstock_core.acls.access import Access
from penstock_core.acls.principal import Principal
from penstock_core.acls.rule_set import PrincipalRules
from penstock_core.errors import ErrorCode
from penstock_core.groups.group_document import GroupDocument
from penstock_core.ids import GroupName, TransactionalId
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.quorum import Acks
from penstock_service.groups.alter_group import alter_group
from penstock_service.groups.claim_group import list_group
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.groups.group_document import put_document
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.topics.list_offsets import OffsetSpec
from penstock_service.transactions.begin_transactions import begin_transactions
from penstock_service.transactions.commit_transaction import OffsetEntry, commit_transaction
from penstock_service.transactions.transaction_part import TransactionPart
from tests.support.group_member import GroupMember
from tests.support.refusals import refused
from tests.support.service import Intercepted, SteppedClock, another_instance, new_topic

ADA, BOB = "arn:aws:iam::1:user/ada", "arn:aws:iam::1:user/bob"
MONTH_MS = 30 * 24 * 3_600_000


def listed(instance: Instance, principal: str, group: str) -> None:
    list_group(instance, UpdateWindow.open(instance.clock), principal, GroupName(group))


def commit(instance: Instance, group: str) -> None:
    commit_offsets(instance, group, [CommitEntry(topic="orders", partition=0, offset=0)], principal=ADA).all_ok()


def transact(instance: Instance, group: str) -> None:
    """Each group in a producer of its own, so that all of them begin with transaction 0."""
    begin_transactions(instance.stores.transactions, instance.entropy, group)
    producer = TransactionalProducer(transactional_id=TransactionalId(group), epoch=0)
    part = TransactionPart(producer=producer, number=0, entries=(), acks=Acks.QUORUM, principal=ADA)
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
    GroupMember(instance, "m", group=group, access=access).beat()


Make = Callable[[Instance, str], None]


@pytest.mark.parametrize("make", [commit, transact, reset, alter, document, join])
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
