"""Callers with a token: on which routes, and with which rights."""

from dataclasses import replace

import pytest

from penstock_core.acls.rule import Kind, Operation, Right
from penstock_core.acls.tokens import AclSettings, TokenSettings
from penstock_core.routes import ROUTE_BY_KEY, ROUTES, Where
from penstock_service.instance.instance import Instance
from tests.handlers.route_samples import ADA, REFUSED, SAMPLES, Sample, World, is_refused, is_served, world

ISSUER = "https://login.example"
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
