import pytest

from penstock_core.acls.rule import Rule, parse_rule
from penstock_core.acls.rule_set import OwnedRules, Owners, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_RULES_MAX

A, B = parse_rule("*", "read", "topic:a"), parse_rule("*", "read", "topic:b")
ENTROPY = bytes(range(8))
EMPTY = OwnedRules()
OLD, NEW = "stack.old", "stack.new"


def of(*rules: Rule, owners: Owners | None = None) -> OwnedRules:
    return OwnedRules(book=RuleBook(revision="x", rules=frozenset(rules)), owners=owners or {})


def state(known: OwnedRules) -> tuple[set[Rule], dict[Rule, set[str]]]:
    return {*known.book.rules}, {rule: {*owners} for rule, owners in known.owners.items()}


def test_change_has_a_new_revision() -> None:
    assert EMPTY.change([A], [], ENTROPY).book == RuleBook(revision="0001020304050607", rules=frozenset({A}))


def test_change_adds_and_removes_at_once() -> None:
    assert of(A).change([B], [A], ENTROPY).book.rules == {B}


def test_rule_that_is_added_and_removed_is_added() -> None:
    assert EMPTY.change([A], [A], ENTROPY).book.rules == {A}


def test_change_of_nothing_keeps_the_revision() -> None:
    known = of(A)
    assert known.change([A], [B], ENTROPY) is known


def test_rules_beyond_the_bound_are_refused_and_may_be_removed() -> None:
    many = [parse_rule("*", "read", f"topic:{n}") for n in range(ACL_RULES_MAX + 1)]
    with pytest.raises(PenstockError, match=f"{ACL_RULES_MAX} at most") as caught:
        EMPTY.change(many, [], ENTROPY)
    assert caught.value.code is ErrorCode.TOO_MANY_ACLS
    assert len(of(*many, A).change([], [A], ENTROPY).book.rules) == ACL_RULES_MAX + 1


def test_rule_goes_with_the_last_resource_that_declares_it() -> None:
    both = EMPTY.change([A], [], ENTROPY, OLD).change([A], [], ENTROPY, NEW)
    one = both.change([], [A], ENTROPY, OLD)
    assert state(one) == ({A}, {A: {NEW}})
    assert one.change([], [A], ENTROPY, OLD) is one  # CloudFormation repeats an event
    assert one.change([], [A], ENTROPY, NEW) == OwnedRules(book=RuleBook(revision=ENTROPY.hex()))


def test_new_owner_alone_is_a_change() -> None:
    changed = of(A).change([A], [], ENTROPY, NEW)
    assert changed.book.revision == ENTROPY.hex()
    assert state(changed) == ({A}, {A: {"", NEW}})


@pytest.mark.parametrize("is_first", [True, False])
def test_rule_of_an_operator_stays_when_a_resource_releases_it(is_first: bool) -> None:
    owners = (None, NEW) if is_first else (NEW, None)
    both = EMPTY.change([A], [], ENTROPY, owners[0]).change([A], [], ENTROPY, owners[1])
    left = both.change([], [A], ENTROPY, NEW)
    assert state(left) == ({A}, {})
    assert left.change([], [A], ENTROPY, NEW) is left


def test_operator_removes_a_rule_whoever_declares_it() -> None:
    removed = of(A, B, owners={A: frozenset({OLD, NEW})}).change([], [A], ENTROPY)
    assert state(removed) == ({B}, {})


def test_owners_of_a_rule_that_is_gone_mean_nothing() -> None:
    added = of(owners={A: frozenset({OLD})}).change([A], [], ENTROPY)  # a release without owners has removed it
    assert state(added) == ({A}, {})


def test_resource_of_an_earlier_release_shares_its_owner_with_operators() -> None:
    known = of(A, B).change([A], [], ENTROPY, NEW)
    assert known.change([], [A, B], ENTROPY, "").book.rules == {A}
