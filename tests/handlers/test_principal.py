"""The caller of an event, and what an event of API Gateway, or one that only looks so, must not bring about.

Callers with a token: on which routes, and with which rights.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.acls.principal import Principal, iam_principal
from penstock_core.acls.rule import Kind, Operation, Right
from penstock_core.acls.tokens import AclSettings, TokenSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.routes import ROUTE_BY_KEY, ROUTES, Where
from penstock_handlers.edge.access.request_access import principal_of
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from tests.handlers.route_samples import ADA, REFUSED, SAMPLES, Sample, World, is_refused, is_served, world

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


ALICE = {"iss": ISSUER, "sub": "alice", "exp": "1790000000"}
OPEN_TO_TOKENS = [sample for sample in SAMPLES if ROUTE_BY_KEY[sample.route].tokens]


def by_token(*, allows_by_default: bool = True) -> World:
    made = world()
    settings = AclSettings(allows_by_default=allows_by_default, tokens=TokenSettings(issuer=ISSUER))
    instance = Instance.new(made.instance.stores, made.instance.runtime, acl_settings=settings)
    return replace(made, instance=instance, caller=ALICE, principal=f"jwt:{ISSUER}#alice")


def test_routes_that_operate_the_service_or_call_targets_take_no_tokens() -> None:
    operating = [route for route in ROUTES if any(each.kind is Kind.SERVICE for each in route.needs)]
    calling = [route for route in ROUTES if any(each.kind is Kind.SUBSCRIPTION for each in route.needs)]
    assert len(operating) == 9
    assert len(calling) == 6
    assert not any(route.tokens for route in (*operating, *calling, ROUTE_BY_KEY["GET /v1/wake-ups"]))


@pytest.mark.parametrize("sample", OPEN_TO_TOKENS, ids=lambda sample: sample.name)
def test_token_with_exactly_the_rights_is_served(sample: Sample) -> None:
    prepared = by_token()
    prepared.grant(*(each.right for each in sample.needed))
    answer = prepared.call(sample)
    bound_to_ada = sample.route == "POST /v1/transactions" and b"ACCESS_DENIED" in answer.body  # the id is ada's
    assert is_served(answer, sample.needed) or bound_to_ada, (answer.status, answer.body)


@pytest.mark.parametrize("sample", OPEN_TO_TOKENS, ids=lambda sample: sample.name)
def test_token_without_rules_has_no_rights_where_the_stage_allows_by_default(sample: Sample) -> None:
    prepared = by_token(allows_by_default=True)
    answer = prepared.call(sample)
    assert not sample.needed or any(is_refused(answer, each) for each in sample.needed), (answer.status, answer.body)
    prepared.caller = ADA
    assert REFUSED not in prepared.call(sample).body


@pytest.mark.parametrize(
    "sample", [each for each in SAMPLES if not ROUTE_BY_KEY[each.route].tokens], ids=lambda sample: sample.name
)
def test_token_operates_nothing_whatever_the_rules_say(sample: Sample) -> None:
    prepared = by_token()
    every = [Right(operation=operation, kind=kind, name="*") for operation in Operation for kind in Kind]
    prepared.grant(*every)
    answer = prepared.call(sample)
    assert answer.status == 403
    assert b"takes no tokens" in answer.body


def test_rules_and_quotas_take_a_subject_without_its_issuer() -> None:
    operator = replace(by_token(), caller=ADA)
    rule = {"principal": "jwt:alice", "operation": "read", "resource": "topic:orders"}
    added = operator.send("POST", "/v1/acls", {"add": [rule]})
    assert added.json["added"] == [{**rule, "principal": f"jwt:{ISSUER}#alice", "permission": "allow"}]
    told = operator.send("POST", "/v1/acls/check", rule).json
    assert (told["is_allowed"], told["principal"]) == (True, f"jwt:{ISSUER}#alice")
    listed = operator.send("GET", "/v1/acls", principal="jwt:alice").json["acls"]
    assert [each["resource"] for each in listed] == ["topic:orders"]
    gone = operator.send("DELETE", "/v1/acls", **rule).json
    assert gone["removed"] == added.json["added"]
    limits = {"subject": "principal", "name": "jwt:alice", "limits": {"fetch_bytes_per_s": 1_000}}
    assert operator.send("PUT", "/v1/quotas", limits).json["name"] == f"jwt:{ISSUER}#alice"
    assert operator.send("DELETE", "/v1/quotas", subject="principal", name="jwt:alice").status == 204


def test_changes_by_a_token_stand_under_its_name_in_the_trail() -> None:
    prepared = by_token()
    prepared.grant(Right(operation=Operation.CREATE, kind=Kind.TOPIC, name="new"))
    assert prepared.send("POST", "/v1/topics", {"name": "new"}).status == 201
    noted = prepared.instance.stores.audit.entries(100)
    assert [each.caller.principal for each in noted if each.name == "new"] == [f"jwt:{ISSUER}#alice"]


def test_caller_without_the_right_to_create_leaves_no_note() -> None:
    prepared = by_token()
    before = len(prepared.instance.stores.audit.entries(100))
    assert prepared.send("POST", "/v1/topics", {"name": "new"}).status == 403
    assert prepared.send("POST", "/v1/topics", {}).status == 400
    assert len(prepared.instance.stores.audit.entries(100)) == before
    assert Where.BODY in {each.where for each in ROUTE_BY_KEY["POST /v1/topics"].needs}
