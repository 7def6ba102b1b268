from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import (
    IMPLY_DESCRIBE,
    Kind,
    NamePattern,
    Operation,
    Right,
    Rule,
    parse_name_pattern,
    parse_rule,
)
from penstock_core.acls.rule_set import Reason, RuleSet
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import AUDIT_TOPIC, is_reserved
from penstock_core.limits import ACL_PRINCIPALS_REMEMBERED_MAX

DENY = AclSettings(allows_by_default=False)
ADA, BOB = "arn:aws:iam::1:user/ada", "arn:aws:iam::1:user/bob"
READ_ORDERS = Right(operation=Operation.READ, kind=Kind.TOPIC, name="orders")

_PATTERNS = st.builds(NamePattern, st.text("ab", max_size=2), st.booleans())
_NAMES_OF_TOPICS = st.builds(NamePattern, st.sampled_from(["", "_", "_a", "_audit", "_audits", "a"]), st.booleans())
_RULES = st.builds(
    Rule,
    principal=_PATTERNS,
    operation=st.none() | st.sampled_from(Operation),
    kind=st.none() | st.sampled_from([Kind.TOPIC, Kind.GROUP]),
    resource=_NAMES_OF_TOPICS,
    is_allow=st.booleans(),
)
_RIGHTS = st.builds(
    Right,
    operation=st.sampled_from(Operation),
    kind=st.sampled_from([Kind.TOPIC, Kind.GROUP]),
    name=st.sampled_from(["_a", "_audit", "_audits", "_penstock", "a"]),
)


def _matches(pattern: NamePattern, name: str) -> bool:
    return name.startswith(pattern.text) if pattern.is_prefix else name == pattern.text


def _decided(rules: list[Rule], principal: str, right: Right, *, allows_by_default: bool) -> bool:
    """The rules as the documentation tells them, one after the other."""
    about = [
        rule
        for rule in rules
        if _matches(rule.principal, principal)
        and rule.kind in (None, right.kind)
        and _matches(rule.resource, right.name)
    ]
    if any(not rule.is_allow and rule.operation in (None, right.operation) for rule in about):
        return False
    if right.operation is Operation.READ and right.kind is Kind.TOPIC and is_reserved(right.name):
        named = [rule for rule in about if rule.resource == NamePattern(right.name)]
        return any(rule.is_allow and rule.operation in (None, Operation.READ) for rule in named)
    operations = {None, right.operation} | (IMPLY_DESCRIBE if right.operation is Operation.DESCRIBE else set())
    return any(rule.is_allow and rule.operation in operations for rule in about) or allows_by_default


@given(st.lists(_RULES, max_size=6), st.text("ab", min_size=1, max_size=3), _RIGHTS, st.booleans())
def test_rule_set_decides_as_the_rules_one_by_one(
    rules: list[Rule], principal: str, right: Right, allows_by_default: bool
) -> None:
    # A rule for everything has no name to match: its resource is all of them.
    rules = [rule if rule.kind is not None else replace(rule, resource=parse_name_pattern("*")) for rule in rules]
    rule_set = RuleSet(rules, AclSettings(allows_by_default=allows_by_default))
    expected = _decided(rules, principal, right, allows_by_default=allows_by_default)
    for _ in range(2):  # the second time from memory
        assert rule_set.of(principal).decide(right).is_allowed is expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], Reason.DEFAULT),
        ([(ADA, "read", "topic:orders", "allow")], Reason.ALLOWED),
        ([(ADA, "read", "topic:orders", "allow"), ("*", "read", "topic:o*", "deny")], Reason.DENIED),
        ([(BOB, "read", "topic:orders", "allow")], Reason.DEFAULT),
        ([(ADA, "all", "*", "allow")], Reason.ALLOWED),
        ([(ADA, "describe", "topic:orders", "deny"), (ADA, "read", "topic:orders", "allow")], Reason.ALLOWED),
    ],
)
def test_decision_tells_what_it_goes_by(texts: list[tuple[str, str, str, str]], expected: Reason) -> None:
    rules = [parse_rule(*each) for each in texts]
    decision = RuleSet(rules, DENY).of(ADA).decide(READ_ORDERS)
    assert (decision.reason, decision.is_allowed) == (expected, expected is Reason.ALLOWED)


READ_AUDIT = Right(operation=Operation.READ, kind=Kind.TOPIC, name=AUDIT_TOPIC)


@pytest.mark.parametrize("resource", ["*", "topic:*", "topic:_*", "topic:_audi*", "topic:_audit*", "service"])
def test_no_pattern_and_no_default_allows_to_read_the_audit_trail(resource: str) -> None:
    for settings in (DENY, AclSettings(allows_by_default=True)):
        rules = RuleSet([parse_rule(ADA, "all", resource)], settings)
        assert not rules.of(ADA).decide(READ_AUDIT).is_allowed


@pytest.mark.parametrize("principal", [ADA, "*"])
def test_rule_with_the_exact_name_allows_to_read_the_audit_trail(principal: str) -> None:
    rules = RuleSet([parse_rule(principal, "read", "topic:_audit")], DENY)
    assert rules.of(ADA).decide(READ_AUDIT).is_allowed
    denied = RuleSet([*rules.rules, parse_rule("*", "read", "topic:_*", "deny")], DENY)
    assert not denied.of(ADA).decide(READ_AUDIT).is_allowed


def test_super_principal_may_do_what_rules_deny() -> None:
    settings = AclSettings(allows_by_default=False, super_principals=(parse_name_pattern("arn:aws:iam::1:user/a*"),))
    rules = [parse_rule("*", "all", "*", "deny")]
    assert RuleSet(rules, settings).of(ADA).decide(READ_ORDERS).reason is Reason.SUPER
    assert not RuleSet(rules, settings).of(BOB).decide(READ_ORDERS).is_allowed


def test_caller_without_a_name_has_no_rule_of_its_own() -> None:
    everybody = RuleSet([parse_rule("*", "all", "*")], DENY)
    assert not everybody.of("").decide(READ_ORDERS).is_allowed
    super_everybody = AclSettings(allows_by_default=False, super_principals=(parse_name_pattern("*"),))
    assert not RuleSet([], super_everybody).of("").decide(READ_ORDERS).is_allowed


def test_caller_without_a_name_is_denied_what_everybody_is() -> None:
    rules = RuleSet([parse_rule("*", "read", "topic:orders", "deny")], AclSettings(allows_by_default=True))
    assert rules.of("").decide(READ_ORDERS).reason is Reason.DENIED
    assert rules.of("").decide(Right(operation=Operation.READ, kind=Kind.TOPIC, name="other")).is_allowed


def test_rule_set_forgets_principals_beyond_its_bound() -> None:
    rules = RuleSet([parse_rule(ADA, "read", "topic:orders")], DENY)
    for number in range(ACL_PRINCIPALS_REMEMBERED_MAX + 1):
        rules.of(f"arn:aws:iam::1:user/{number}")
    assert rules.of(ADA).decide(READ_ORDERS).is_allowed


FEDERATED = "arn:aws:sts::1:federated-user"


@pytest.mark.parametrize("principal", ["*", "arn:*", "arn:aws:sts::1:*", "arn:aws:sts::2:federated-user"])
def test_federated_user_has_no_right_but_by_a_rule_for_federated_users(principal: str) -> None:
    settings = AclSettings(allows_by_default=True, super_principals=(parse_name_pattern("arn:*"),))
    caller = iam_principal(f"{FEDERATED}/any").name
    assert not RuleSet([parse_rule(principal, "all", "*")], settings).of(caller).decide(READ_ORDERS).is_allowed
    for named in (FEDERATED, f"{FEDERATED}/*", f"{FEDERATED}*"):
        allowed = parse_rule(named, "read", "topic:orders")
        assert RuleSet([allowed], DENY).of(caller).decide(READ_ORDERS).is_allowed
    denied = parse_rule("*", "read", "topic:*", "deny")
    assert not RuleSet([allowed, denied], DENY).of(caller).decide(READ_ORDERS).is_allowed


def test_rule_that_names_one_federated_user_is_refused() -> None:
    for name in ("bob", "b*"):
        with pytest.raises(PenstockError, match=f"give {FEDERATED} for all"):
            parse_rule(f"{FEDERATED}/{name}", "all", "*", "deny")


ALICE = "jwt:https://login.example#alice"


@pytest.mark.parametrize(
    ("principal", "permission", "is_allowed"),
    [
        (ALICE, "allow", True),
        ("jwt:https://login.example#al*", "allow", True),
        ("jwt:https://login.example#*", "allow", True),
        ("jwt:https://login*", "allow", False),
        ("jwt:*", "allow", False),
        ("*", "allow", False),
        ("jwt:https://login.example#alic", "allow", False),
        ("jwt:https://other.example#alice", "allow", False),
        ("*", "deny", False),
    ],
)
def test_token_has_a_right_only_by_a_rule_that_names_its_issuer(
    principal: str, permission: str, is_allowed: bool
) -> None:
    settings = AclSettings(allows_by_default=True, super_principals=(parse_name_pattern("*"),))
    rules = RuleSet([parse_rule(principal, "read", "topic:orders", permission)], settings)
    assert rules.of(ALICE).decide(READ_ORDERS).is_allowed is is_allowed


@pytest.mark.parametrize("pattern", ["*", "jwt:*", ALICE[:-1] + "*", ALICE])
def test_every_denial_is_about_tokens(pattern: str) -> None:
    denied = parse_rule(pattern, "read", "topic:orders", "deny")
    rules = RuleSet([parse_rule(ALICE, "all", "*"), denied], AclSettings())
    assert not rules.of(ALICE).decide(READ_ORDERS).is_allowed
