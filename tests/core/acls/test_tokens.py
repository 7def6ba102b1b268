import json

import pytest

from penstock_core.acls.rule import Kind, NamePattern, Operation, Right, parse_rule
from penstock_core.acls.rule_set import Reason, RuleSet
from penstock_core.acls.tokens import (
    AclSettings,
    TokenSettings,
    acl_settings_of,
    check_issuer,
    full_principal,
    token_principal,
    token_settings_of,
    trusted_principal,
)
from penstock_core.errors import ErrorCode, PenstockError

ISSUER = "https://login.example/pool"
TOKENS = TokenSettings(issuer=ISSUER)
ROLE = "arn:aws:iam::111122223333:role/ops"


def test_settings_are_of_the_environment() -> None:
    assert token_settings_of({}) is None
    assert token_settings_of({"PENSTOCK_JWT_CLAIM": "email"}) is None
    assert token_settings_of({"PENSTOCK_JWT_ISSUER": ISSUER}) == TOKENS
    given = {"PENSTOCK_JWT_ISSUER": ISSUER, "PENSTOCK_JWT_CLAIM": "email"}
    assert token_settings_of(given) == TokenSettings(issuer=ISSUER, claim="email")


@pytest.mark.parametrize(
    "issuer",
    ["login.example", "ftp://login.example", "https://", "https://a#b", "https://a/*", "https://a b", "https://u@a",
     "https://a?b", "https://é", "https://a/" + "b" * 300],
)  # fmt: skip
def test_issuer_that_would_make_principals_alike_is_refused(issuer: str) -> None:
    with pytest.raises(ValueError, match="give the URL"):
        check_issuer(issuer)
    with pytest.raises(ValueError, match="give the URL"):
        token_settings_of({"PENSTOCK_JWT_ISSUER": issuer})


def test_short_principal_stands_for_the_issuer_of_the_stage() -> None:
    assert full_principal("jwt:alice", TOKENS) == f"jwt:{ISSUER}#alice"
    assert full_principal("jwt:repo:shop/*", TOKENS) == f"jwt:{ISSUER}#repo:shop/*"
    assert full_principal("jwt:*", TOKENS) == f"jwt:{ISSUER}#*"
    assert full_principal("jwt:team#bob", TOKENS) == f"jwt:{ISSUER}#team#bob"
    assert full_principal("jwt:#bob", TOKENS) == f"jwt:{ISSUER}##bob"
    for text in (f"jwt:{ISSUER}#alice", "jwt:https://b#c", "jwt:HTTPS://b#c", "arn:aws:iam::1:role/jwt:x", "*"):
        assert full_principal(text, TOKENS) == full_principal(text, None) == text


@pytest.mark.parametrize(
    "text", ["jwt:https://b#c", f"jwt:{ISSUER}/#c", f"jwt:{ISSUER.upper()}#c", "jwt:http://login.example/pool#*"]
)
def test_rule_for_an_issuer_that_the_stage_does_not_trust_is_refused(text: str) -> None:
    for tokens in (TOKENS, None):
        with pytest.raises(PenstockError, match="this stage takes") as refused:
            trusted_principal(text, tokens)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    for own in ("jwt:alice", "jwt:team#bob", "jwt:*", f"jwt:{ISSUER}#alice", "*", "arn:aws:iam::1:user/ada"):
        assert trusted_principal(own, TOKENS) == full_principal(own, TOKENS)


@pytest.mark.parametrize("subject", ["team#bob", "#bob", "a##", "repo:shop/main#1"])
def test_denial_of_a_subject_with_a_hash_is_about_its_token(subject: str) -> None:
    caller = token_principal({"iss": ISSUER, "exp": 1, "sub": subject}, TOKENS).name
    rule = parse_rule(trusted_principal(f"jwt:{subject}", TOKENS), "all", "*", "deny")
    rules = RuleSet([rule, parse_rule(f"jwt:{ISSUER}#*", "all", "*")], AclSettings(tokens=TOKENS))
    right = Right(operation=Operation.READ, kind=Kind.TOPIC, name="orders")
    assert rules.of(caller).decide(right).reason is Reason.DENIED


@pytest.mark.parametrize(("text", "tokens"), [("jwt:alice", None), ("jwt:https://login*", TOKENS), ("jwt:*", None)])
def test_principal_of_no_issuer_is_refused(text: str, tokens: TokenSettings | None) -> None:
    with pytest.raises(PenstockError, match="jwt:ISSUER#SUBJECT") as refused:
        full_principal(text, tokens)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_claims_name_the_principal_that_rules_name() -> None:
    named = token_principal({"iss": ISSUER, "exp": 1, "sub": "alice"}, TOKENS)
    assert named.name == full_principal("jwt:alice", TOKENS)
    assert named.is_token


def test_stage_that_allows_what_no_rule_denies_says_so() -> None:
    assert acl_settings_of({"PENSTOCK_ACL_DEFAULT": "allow"}) == AclSettings(allows_by_default=True)


def test_variables_say_the_default_and_who_may_do_everything() -> None:
    variables = {"PENSTOCK_ACL_DEFAULT": "deny", "PENSTOCK_SUPER_PRINCIPALS": json.dumps([ROLE, "jwt:https://a#*"])}
    assert acl_settings_of(variables) == AclSettings(
        allows_by_default=False, super_principals=(NamePattern(ROLE), NamePattern("jwt:https://a#", is_prefix=True))
    )


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PENSTOCK_ACL_DEFAULT": "Deny"},
        {"PENSTOCK_ACL_DEFAULT": ""},
        {"PENSTOCK_ACL_DEFAULT": "deny", "PENSTOCK_SUPER_PRINCIPALS": "ops"},
        {"PENSTOCK_ACL_DEFAULT": "deny", "PENSTOCK_SUPER_PRINCIPALS": '["ops"]'},
    ],
)
def test_value_that_means_nothing_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises((ValueError, PenstockError)):
        acl_settings_of(variables)
