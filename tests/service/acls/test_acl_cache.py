"""How old the rules may be by which an instance decides, and what it does when it cannot read them."""

from dataclasses import dataclass, field

import pytest

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import Kind, Operation, parse_rule
from penstock_core.acls.rule_set import RuleBook
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_AGE_MS_MAX, ACL_OUTAGE_MS_MAX
from penstock_service.adapters.dynamodb.topics import DynamoDbAclStore
from penstock_service.instance.caches import AclCache
from tests.support.service import FrozenClock, SteppedClock
from tests.support.tables import memory_client

ADA = iam_principal("arn:aws:iam::1:user/ada")
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
