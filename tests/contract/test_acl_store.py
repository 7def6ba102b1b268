"""The contract of AclStore, held by the adapters in memory and on DynamoDB."""

import secrets

import pytest

from penstock_core.acls.rule import parse_rule
from penstock_core.acls.rule_set import EMPTY_BOOK, NO_REVISION, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from tests.contract.conftest import Ports

A, B = parse_rule("*", "read", "topic:é*".replace("é", "e")), parse_rule("jwt:https://i#é", "all", "*", "deny")
FIRST = RuleBook(revision="01" * 8, rules=frozenset({A, B}))
SECOND = RuleBook(revision="02" * 8, rules=frozenset({B}))


def test_there_are_no_rules_at_first(ports: Ports) -> None:
    assert ports.acls.get() == EMPTY_BOOK
    assert ports.acls.revision() == NO_REVISION


def test_rules_are_kept_whole_with_their_revision(ports: Ports) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    assert (ports.acls.get(), ports.acls.revision()) == (FIRST, FIRST.revision)
    ports.acls.change(FIRST.revision, SECOND)
    assert (ports.acls.get(), ports.acls.revision()) == (SECOND, SECOND.revision)


@pytest.mark.parametrize("seen", [NO_REVISION, "03" * 8])
def test_change_of_other_rules_is_refused_and_changes_nothing(ports: Ports, seen: str) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    with pytest.raises(PenstockError) as caught:
        ports.acls.change(seen, SECOND)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.CONCURRENT_UPDATE, False)
    assert (ports.acls.get(), ports.acls.revision()) == (FIRST, FIRST.revision)


def test_rules_too_large_for_an_item_are_refused(ports: Ports) -> None:
    rules = frozenset(parse_rule(f"arn:{secrets.token_hex(250)}", "read", "topic:a") for _ in range(2_000))
    with pytest.raises(PenstockError) as caught:
        ports.acls.change(NO_REVISION, RuleBook(revision="1", rules=rules))
    assert caught.value.code is ErrorCode.TOO_MANY_ACLS
    assert ports.acls.get() == EMPTY_BOOK


def test_owners_are_kept_until_others_are_given(ports: Ports) -> None:
    assert ports.acls.owners() == {}
    owners = {A: frozenset({"", "a.1"}), B: frozenset({"b.2"})}
    ports.acls.change(NO_REVISION, FIRST, owners)
    ports.acls.change(FIRST.revision, SECOND)
    assert ports.acls.owners() == owners
    ports.acls.change(SECOND.revision, FIRST, {})
    assert ports.acls.owners() == {}


def test_refused_change_leaves_the_owners(ports: Ports) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    with pytest.raises(PenstockError, match="try again"):
        ports.acls.change("03" * 8, SECOND, {A: frozenset({"a.1"})})
    assert ports.acls.owners() == {}


def test_rules_meet_no_topic(ports: Ports) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    assert ports.topics.list() == []
