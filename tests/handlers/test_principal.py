"""The caller of an event, and what an event of API Gateway, or one that only looks so, must not bring about."""

import json
from typing import Any

import pytest

from penstock_core.acls.principal import Principal, iam_principal
from penstock_core.acls.tokens import AclSettings, TokenSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_handlers.edge.access.request_access import principal_of
from penstock_service.adapters.memory.service import memory_instance

SESSION = "arn:aws:sts::111122223333:assumed-role/ledger/i-0abc"
ISSUER = "https://login.example"
CLAIMS = {"iss": ISSUER, "sub": "ada", "aud": "penstock", "exp": "1790000000"}
BY_TOKEN = memory_instance(acl_settings=AclSettings(tokens=TokenSettings(issuer=ISSUER)))
BY_MAIL = memory_instance(acl_settings=AclSettings(tokens=TokenSettings(issuer=ISSUER, claim="email")))
WITHOUT_TOKENS = memory_instance()


def token(**claims: Any) -> dict[str, Any]:
    return {"requestContext": {"authorizer": {"jwt": {"claims": {**CLAIMS, **claims}, "scopes": None}}}}


def caller(event: dict[str, Any]) -> Principal:
    return principal_of(event, BY_TOKEN)


def test_signature_names_its_caller() -> None:
    assert caller({"requestContext": {"authorizer": {"iam": {"userArn": SESSION}}}}) == iam_principal(SESSION)


def test_token_names_its_caller() -> None:
    assert caller(token()).name == "jwt:https://login.example#ada"
    assert principal_of(token(email="ada@example.com"), BY_MAIL).name == "jwt:https://login.example#ada@example.com"


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"authorizer": {}},
        {"authorizer": None},
        {"authorizer": "ada"},
        {"authorizer": {"iam": {}}},
        {"authorizer": {"iam": None, "jwt": None}},
        {"authorizer": {"iam": {"userArn": None}}},
        {"authorizer": {"iam": {"userArn": ""}}},
        {"authorizer": {"iam": {"userArn": "jwt:https://login.example#ada"}}},
        {"authorizer": {"iam": {"userArn": ["arn:aws:iam::1:user/ada"]}}},
        {"authorizer": {"lambda": {"userArn": SESSION, "claims": CLAIMS}}},
        {"authorizer": {"claims": CLAIMS}},
        {"authorizer": {"jwt": {"scopes": ["penstock"]}}},
        {"authorizer": {"jwt": {"claims": None}}},
        {"authorizer": {"jwt": "ada"}},
        {"authorizer": {"jwt": [CLAIMS]}},
        {"authorizer": {"iam": {"userArn": SESSION}, "jwt": {"claims": CLAIMS}}},
        {"identity": {"userArn": SESSION}},
    ],
)
def test_event_with_neither_caller_or_with_both_is_refused(context: dict[str, object]) -> None:
    headers = {"authorization": "Bearer a.b.c", "x-amzn-user-arn": SESSION, "sub": "ada"}
    with pytest.raises(PenstockError) as refused:
        caller({"requestContext": context, "headers": headers, "body": json.dumps({"userArn": SESSION})})
    assert refused.value.code is ErrorCode.NOT_AUTHORIZED


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": ""},
        {"sub": None},
        {"sub": 7},
        {"sub": ["ada", "bob"]},
        {"sub": "[ada bob]"},  # as API Gateway writes a list
        {"sub": "*"},
        {"sub": "ad*"},
        {"sub": "a*a"},
        {"sub": "ada bob"},
        {"sub": "ada\n"},
        {"sub": "ada\x00"},
        {"sub": "\u202eada"},
        {"sub": "аda"},
        {"sub": "ada\x7f"},
        {"sub": "a" * 600},
        {"iss": "https://login.example/"},
        {"iss": "https://LOGIN.example"},
        {"iss": "https://evil.example"},
        {"iss": ["https://login.example"]},
        {"iss": None},
        {"exp": None},
        {"exp": ""},
    ],
)
def test_claims_that_name_no_one_caller_are_refused(claims: dict[str, object]) -> None:
    with pytest.raises(PenstockError) as refused:
        caller(token(**claims))
    assert refused.value.code is ErrorCode.NOT_AUTHORIZED


@pytest.mark.parametrize("sub", [SESSION, "arn:aws:iam::1:role/x", "jwt:https://other.example#root", "x#y", "local"])
def test_subject_never_becomes_another_principal(sub: str) -> None:
    assert caller(token(sub=sub)).name == f"jwt:{ISSUER}#{sub}"


def test_token_is_refused_where_the_stage_takes_none() -> None:
    with pytest.raises(PenstockError, match="takes no tokens"):
        principal_of(token(), WITHOUT_TOKENS)
