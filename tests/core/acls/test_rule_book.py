import pytest

from penstock_core.acls.rule import parse_rule
from penstock_core.acls.rule_set import EMPTY_BOOK, RuleBook, changed
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_RULES_MAX

A, B = parse_rule("*", "read", "topic:a"), parse_rule("*", "read", "topic:b")
ENTROPY = bytes(range(8))


def test_change_has_a_new_revision() -> None:
    assert changed(EMPTY_BOOK, [A], [], ENTROPY) == RuleBook(revision="0001020304050607", rules=frozenset({A}))


def test_change_adds_and_removes_at_once() -> None:
    book = changed(RuleBook(revision="x", rules=frozenset({A})), [B], [A], ENTROPY)
    assert book.rules == {B}


def test_rule_that_is_added_and_removed_is_added() -> None:
    assert changed(EMPTY_BOOK, [A], [A], ENTROPY).rules == {A}


def test_change_of_nothing_keeps_the_revision() -> None:
    book = RuleBook(revision="x", rules=frozenset({A}))
    assert changed(book, [A], [B], ENTROPY) is book


def test_rules_beyond_the_bound_are_refused_and_may_be_removed() -> None:
    many = [parse_rule("*", "read", f"topic:{n}") for n in range(ACL_RULES_MAX + 1)]
    with pytest.raises(PenstockError, match=f"{ACL_RULES_MAX} at most") as caught:
        changed(EMPTY_BOOK, many, [], ENTROPY)
    assert caught.value.code is ErrorCode.TOO_MANY_ACLS
    full = RuleBook(revision="x", rules=frozenset([*many, A]))
    assert len(changed(full, [], [A], ENTROPY).rules) == ACL_RULES_MAX + 1
