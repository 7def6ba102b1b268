import pytest

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import Kind, Operation, parse_rule
from penstock_core.acls.rule_set import Owners, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_ATTEMPTS_MAX
from penstock_service.acls.change_acls import change_acls
from penstock_service.adapters.dynamodb.topics import DynamoDbAclStore
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.ports.access import AclStore
from tests.support.refusals import refused
from tests.support.service import Intercepted, SteppedClock, another_instance
from tests.support.tables import memory_client

ADA = iam_principal("arn:aws:iam::1:user/ada")
A, B, C = (parse_rule(ADA.name, "read", f"topic:{name}", "deny") for name in "abc")


class _Contended(DynamoDbAclStore):
    """Before each of the first changes, another request makes one."""

    def __init__(self, others: int) -> None:
        super().__init__(memory_client(), "topics")
        self.others = others

    def change(self, seen: str, book: RuleBook, owners: Owners | None = None) -> None:
        if self.others:
            self.others -= 1
            new = RuleBook(revision=f"other {self.others}", rules=self.get().rules | {C})
            super().change(self.revision(), new, {C: frozenset({f"x.{self.others}"})})
        super().change(seen, book, owners)


def _instance(acls: AclStore | None = None) -> Instance:
    plain = memory_instance(clock=SteppedClock())
    return plain if acls is None else another_instance(plain, acls=acls)


def test_change_tells_what_it_has_changed() -> None:
    instance = _instance()
    assert change_acls(instance, [A, B], [C]).added == {A, B}
    done = change_acls(instance, [B], [A, C])
    assert (done.added, done.removed) == (frozenset(), frozenset({A}))
    assert instance.stores.acls.get().rules == {B}


def test_repeat_changes_nothing() -> None:
    instance = _instance()
    change_acls(instance, [A], [])
    before = instance.stores.acls.get()
    done = change_acls(instance, [A], [])
    assert (done.added, done.removed) == (frozenset(), frozenset())
    assert instance.stores.acls.get() == before


def test_change_holds_at_once_on_the_instance_that_made_it() -> None:
    instance = _instance()
    assert instance.acl_cache.access_of(ADA).may(Operation.READ, Kind.TOPIC, "a")
    change_acls(instance, [A], [])
    assert not instance.acl_cache.access_of(ADA).may(Operation.READ, Kind.TOPIC, "a")


def test_change_joins_those_of_others() -> None:
    instance = _instance(_Contended(3))
    assert change_acls(instance, [A], []).added == {A}
    assert instance.stores.acls.get().rules == {A, C}


def test_owner_joins_those_that_come_meanwhile() -> None:
    instance = _instance(_Contended(2))
    assert change_acls(instance, [C], [], owner="y.1").added == frozenset()
    assert instance.stores.acls.owners() == {C: {"x.0", "y.1"}}
    assert change_acls(instance, [], [C], owner="x.0").removed == frozenset()
    assert change_acls(instance, [], [C], owner="y.1").removed == {C}
    assert instance.stores.acls.owners() == {}


def test_operator_revokes_while_the_owners_cannot_be_read_and_leaves_them() -> None:
    instance = _instance()
    change_acls(instance, [A, B], [], owner="x.0")

    def later(_: object) -> Owners:
        raise PenstockError(ErrorCode.UNSUPPORTED_FORMAT, "use a later release")

    stuck = another_instance(instance, acls=Intercepted(instance.stores.acls, owners=later))
    assert change_acls(stuck, [], [A]).removed == {A}
    assert instance.stores.acls.get().rules == {B}
    assert instance.stores.acls.owners() == {A: {"x.0"}, B: {"x.0"}}
    refused(ErrorCode.UNSUPPORTED_FORMAT, lambda: change_acls(stuck, [C], [B]))
    refused(ErrorCode.UNSUPPORTED_FORMAT, lambda: change_acls(stuck, [], [B], owner="x.0"))
    assert instance.stores.acls.get().rules == {B}


def test_operator_revokes_nothing_while_the_table_is_away() -> None:
    instance = _instance()
    change_acls(instance, [A], [])

    def away(_: object) -> Owners:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")

    broken = another_instance(instance, acls=Intercepted(instance.stores.acls, owners=away))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: change_acls(broken, [], [A]))


def test_change_gives_up_when_others_change_all_the_time() -> None:
    instance = _instance(_Contended(ACL_ATTEMPTS_MAX + 1))
    with pytest.raises(PenstockError) as caught:
        change_acls(instance, [A], [])
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert instance.stores.acls.get().rules == {C}
