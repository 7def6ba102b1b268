"""How old the rules may be by which an instance decides, and what it does when it cannot read them."""

from dataclasses import dataclass, field

import pytest

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import Kind, Operation, parse_rule
from penstock_core.acls.rule_set import Owners, RuleBook
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_AGE_MS_MAX, ACL_ATTEMPTS_MAX, ACL_OUTAGE_MS_MAX
from penstock_service.acls.change_acls import change_acls, list_acls
from penstock_service.adapters.dynamodb.topics import DynamoDbAclStore
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.caches import AclCache
from penstock_service.instance.instance import Instance
from penstock_service.ports.access import AclStore
from tests.support.refusals import refused
from tests.support.service import FrozenClock, Intercepted, SteppedClock, another_instance
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


ALLOW = RuleBook(revision="1", rules=frozenset({parse_rule(ADA.name, "read", "topic:a")}))
EMPTY = RuleBook(revision="2")
DENY = AclSettings(allows_by_default=False)


@dataclass
class _Counted(DynamoDbAclStore):
    """Counts its reads, and fails while it is away."""

    calls: list[str] = field(default_factory=list)
    is_away: bool = False

    def __post_init__(self) -> None:
        super().__init__(memory_client(), "topics")

    def revision(self) -> str:
        self._read("revision")
        return super().revision()

    def get(self) -> RuleBook:
        self._read("get")
        return super().get()

    def _read(self, name: str) -> None:
        self.calls.append(name)
        if self.is_away:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")


@pytest.fixture
def store() -> _Counted:
    store = _Counted()
    store.change("", ALLOW)
    return store


def _may(cache: AclCache) -> bool:
    return cache.access_of(ADA).may(Operation.READ, Kind.TOPIC, "a")


def test_look_at_the_newest_rules_that_fails_forgets_none(store: _Counted) -> None:
    cache = AclCache(store, SteppedClock(), DENY)
    assert _may(cache)
    store.is_away = True
    with pytest.raises(PenstockError, match="away"):
        cache.newest_access_of(ADA)
    assert _may(cache)
    store.is_away = False
    store.change("1", EMPTY)
    assert not cache.newest_access_of(ADA).may(Operation.READ, Kind.TOPIC, "a")


def test_warm_request_reads_nothing(store: _Counted) -> None:
    clock = SteppedClock()
    cache = AclCache(store, clock, DENY)
    assert _may(cache)
    clock.sleep_ms(ACL_AGE_MS_MAX - 1)
    assert _may(cache)
    assert store.calls == ["get"]


def test_rules_that_have_not_changed_cost_one_small_read(store: _Counted) -> None:
    clock = SteppedClock()
    cache = AclCache(store, clock, DENY)
    for _ in range(3):
        assert _may(cache)
        clock.sleep_ms(ACL_AGE_MS_MAX)
    assert store.calls == ["get", "revision", "revision"]


def test_removed_rule_holds_no_longer_than_the_age(store: _Counted) -> None:
    clock = SteppedClock()
    cache = AclCache(store, clock, DENY)
    assert _may(cache)
    store.change("1", EMPTY)
    clock.sleep_ms(ACL_AGE_MS_MAX)
    assert not _may(cache)


def test_rules_of_a_frozen_instance_are_too_old_after_the_freeze(store: _Counted) -> None:
    """The clock that counts more decides: one of them may have stood still."""
    clock = SteppedClock()
    frozen = FrozenClock(clock)
    cache = AclCache(store, frozen, DENY)
    assert _may(cache)
    store.change("1", EMPTY)
    frozen.frozen_ms = ACL_AGE_MS_MAX
    clock.sleep_ms(ACL_AGE_MS_MAX)
    assert not _may(cache)


def test_age_counts_from_before_the_read(store: _Counted) -> None:
    """The rules may change while a slow read of them is under way."""
    clock = SteppedClock()

    class _Slow(_Counted):
        def get(self) -> RuleBook:
            book = super().get()
            clock.sleep_ms(ACL_AGE_MS_MAX)
            return book

    slow = _Slow()
    slow.change("", ALLOW)
    cache = AclCache(slow, clock, DENY)
    assert _may(cache)
    slow.change("1", EMPTY)
    assert not _may(cache)


def test_instance_that_never_read_rules_refuses_all(store: _Counted) -> None:
    store.is_away = True
    with pytest.raises(PenstockError) as caught:
        AclCache(store, SteppedClock(), AclSettings()).access_of(ADA)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE


def test_rules_hold_over_a_short_outage_and_not_longer(store: _Counted) -> None:
    clock = SteppedClock()
    cache = AclCache(store, clock, DENY)
    assert _may(cache)
    store.is_away = True
    clock.sleep_ms(ACL_AGE_MS_MAX)
    for _ in range(3):
        assert _may(cache)
    assert store.calls == ["get", "revision"], "the requests right after a failure do not wait for another one"
    clock.sleep_ms(ACL_OUTAGE_MS_MAX - ACL_AGE_MS_MAX)
    with pytest.raises(PenstockError):
        cache.access_of(ADA)
    store.is_away = False
    assert _may(cache)


def test_forgotten_rules_are_read_again(store: _Counted) -> None:
    cache = AclCache(store, SteppedClock(), DENY)
    assert _may(cache)
    cache.forget()
    assert _may(cache)
    assert store.calls == ["get", "get"]


RULES = [parse_rule("*", "read", f"topic:{name}") for name in "cab"]
OPS = parse_rule("arn:aws:iam::1:role/ops", "all", "*")


def test_rules_come_in_pages_by_place() -> None:
    instance = memory_instance()
    change_acls(instance, [*RULES, OPS], [])
    first, after = list_acls(instance, 3, "")
    assert after is not None
    second, end = list_acls(instance, 3, after)
    assert [rule.resource_text for rule in (*first, *second)] == ["*", "topic:a", "topic:b", "topic:c"]
    assert (len(first), end) == (3, None)


def test_list_of_one_principal_or_resource_has_only_its_rules() -> None:
    instance = memory_instance()
    change_acls(instance, [*RULES, OPS], [])
    assert list_acls(instance, 9, "", principal=str(OPS.principal)) == ([OPS], None)
    assert list_acls(instance, 9, "", resource="topic:a", principal="*") == ([RULES[1]], None)
    assert list_acls(instance, 9, "", resource="topic:a*") == ([], None)
