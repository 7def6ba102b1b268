import pytest

from penstock_core.acls.tokens import TokenSettings, check_issuer, full_principal, token_principal, token_settings_of
from penstock_core.errors import ErrorCode, PenstockError

ISSUER = "https://login.example/pool"
TOKENS = TokenSettings(issuer=ISSUER)


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
    for text in (f"jwt:{ISSUER}#alice", "jwt:https://b#c", "arn:aws:iam::1:role/jwt:x", "*"):
        assert full_principal(text, TOKENS) == full_principal(text, None) == text


@pytest.mark.parametrize(("text", "tokens"), [("jwt:alice", None), ("jwt:https://login*", TOKENS), ("jwt:*", None)])
def test_principal_of_no_issuer_is_refused(text: str, tokens: TokenSettings | None) -> None:
    with pytest.raises(PenstockError, match="jwt:ISSUER#SUBJECT") as refused:
        full_principal(text, tokens)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_claims_name_the_principal_that_rules_name() -> None:
    named = token_principal({"iss": ISSUER, "exp": 1, "sub": "alice"}, TOKENS)
    assert named.name == full_principal("jwt:alice", TOKENS)
    assert named.is_token
