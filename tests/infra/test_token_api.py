"""The API for callers with tokens: its routes want one, and a stage that takes none has nothing of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template
from cdk_nag import AwsSolutionsChecks

from penstock_cdk import Jwt, StageSettings
from penstock_cdk.overrides import overridden
from penstock_core.routes import ROUTES
from tests.infra.conftest import settings_named
from tests.infra.templates import name_of, of_type

ISSUER = "https://login.example"
JWT = Jwt(issuer=ISSUER, audiences=["penstock", "shop"], claim="email", scopes=["penstock/use"])


@pytest.fixture(scope="module")
def stack(make_stack_of: Callable[[StageSettings], Stack]) -> Stack:
    return make_stack_of(replace(settings_named("prod"), name="tokens", jwt=JWT))


@pytest.fixture(scope="module")
def found(stack: Stack) -> dict[str, Any]:
    return dict(Template.from_stack(stack).to_json())


@pytest.mark.synth
def test_every_route_of_the_second_api_wants_a_token_of_the_issuer(found: dict[str, Any]) -> None:
    resources = found["Resources"]
    routes = list(of_type(resources, "AWS::ApiGatewayV2::Route").values())
    by_token = [each for each in routes if each["AuthorizationType"] == "JWT"]
    assert {each["AuthorizationType"] for each in routes if each not in by_token} == {"AWS_IAM"}
    assert {each["RouteKey"] for each in by_token} == {each.key for each in ROUTES if each.tokens}
    assert all(each["AuthorizationScopes"] == ["penstock/use"] for each in by_token)
    [authorizer] = of_type(resources, "AWS::ApiGatewayV2::Authorizer").values()
    assert authorizer["JwtConfiguration"] == {"Audience": ["penstock", "shop"], "Issuer": ISSUER}
    assert (authorizer["AuthorizerType"], authorizer["IdentitySource"]) == ("JWT", ["$request.header.Authorization"])
    assert {name_of(each["AuthorizerId"]) for each in by_token} == {f"<{name}>" for name in _names(resources)}
    assert not any("CorsConfiguration" in each for each in of_type(resources, "AWS::ApiGatewayV2::Api").values())
    assert len(resources) < 470  # CloudFormation takes 500, and topics that an app declares are among them


def _names(resources: dict[str, Any]) -> list[str]:
    return [name[:-8] for name, each in resources.items() if each["Type"] == "AWS::ApiGatewayV2::Authorizer"]


@pytest.mark.synth
def test_stage_of_the_second_api_has_lower_rates_and_logs_who_called(found: dict[str, Any]) -> None:
    stages = of_type(found["Resources"], "AWS::ApiGatewayV2::Stage").values()
    [own] = [each for each in stages if "TokenApi" in name_of(each["ApiId"])]
    assert own["RouteSettings"].keys() == {each.key for each in ROUTES if each.tokens}
    rates = {key: each["ThrottlingRateLimit"] for key, each in own["RouteSettings"].items()}
    assert (rates["POST /v1/produce"], rates["GET /v1/groups"]) == (250, 100)
    logged = json.loads(own["AccessLogSettings"]["Format"])
    assert logged["issuer"] == "$context.authorizer.claims.iss"
    assert (logged["subject"], logged["claim"]) == (
        "$context.authorizer.claims.sub",
        "$context.authorizer.claims.email",
    )
    assert len({name_of(each["AccessLogSettings"]["DestinationArn"]) for each in stages}) == 1


@pytest.mark.synth
def test_functions_of_the_api_know_the_issuer_and_the_claim(found: dict[str, Any]) -> None:
    for function in of_type(found["Resources"], "AWS::Lambda::Function").values():
        variables = function.get("Environment", {}).get("Variables", {})
        name = str(function["FunctionName"]).removeprefix("tokens-").replace("-", "_")
        told = {key: value for key, value in variables.items() if key.startswith("PENSTOCK_JWT")}
        is_route = any(each.function == name for each in ROUTES)
        assert told == ({"PENSTOCK_JWT_ISSUER": ISSUER, "PENSTOCK_JWT_CLAIM": "email"} if is_route else {})


@pytest.mark.synth
def test_one_alarm_watches_both_apis_by_their_log_and_the_second_one_has_outputs(found: dict[str, Any]) -> None:
    alarms = {each["AlarmName"] for each in of_type(found["Resources"], "AWS::CloudWatch::Alarm").values()}
    assert [name for name in alarms if name.endswith("5xx")] == ["tokens-api-5xx"]
    stages = of_type(found["Resources"], "AWS::ApiGatewayV2::Stage").values()
    assert [json.loads(each["AccessLogSettings"]["Format"])["status"] for each in stages] == ["$context.status"] * 2
    assert {name_of(each["AccessLogSettings"]["DestinationArn"]) for each in stages} == {"<ApiAccessLog>"}
    assert found["Outputs"].keys() >= {"TokenApiUrl", "TokenApiId"}


@pytest.mark.synth
def test_aws_solutions_rules_hold_for_the_second_api(stack: Stack) -> None:
    assert not AwsSolutionsChecks().validate_scope(stack).violations


@pytest.mark.synth
def test_stage_without_tokens_has_nothing_of_it(template: Callable[[str], dict[str, Any]]) -> None:
    plain = template("prod")
    assert "TokenApiUrl" not in plain["Outputs"]
    assert len(of_type(plain["Resources"], "AWS::ApiGatewayV2::Api")) == 1
    assert not of_type(plain["Resources"], "AWS::ApiGatewayV2::Authorizer")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"issuer": "login.example"}, "give the URL"),
        ({"issuer": "http://login.example"}, "https"),
        ({"issuer": "http://127.0.0.1.evil.example"}, "https"),
        ({"audiences": []}, "audience"),
        ({"audiences": [""]}, "audience"),
        ({"audiences": "penstock"}, "sequences"),
        ({"claim": "e mail"}, "claim"),
        ({"scopes": "openid"}, "sequences"),
        ({"scopes": [""]}, "scope"),
    ],
)
def test_setting_that_would_let_in_other_tokens_is_refused(given: dict[str, Any], told: str) -> None:
    fields: dict[str, Any] = {"issuer": ISSUER, "audiences": ["penstock"], **given}
    with pytest.raises(ValueError, match=told):
        Jwt(**fields)


@pytest.mark.parametrize(
    ("text", "audiences", "scopes"),
    [
        ("https://login.example,penstock", ["penstock"], []),
        ("https://login.example, a, b", ["a", "b"], []),
        ("https://login.example, a, scope=use, scope=penstock/all", ["a"], ["use", "penstock/all"]),
    ],
)
def test_context_names_issuer_audiences_and_scopes(text: str, audiences: list[str], scopes: list[str]) -> None:
    settings = overridden(StageSettings(name="shop"), {"jwt": text}.get)
    assert settings.jwt == Jwt(issuer=ISSUER, audiences=audiences, scopes=scopes)
    assert overridden(settings, {"jwt": "off"}.get).jwt is None


@pytest.mark.parametrize(
    "text", ["", "on", "https://login.example", "https://login.example,scope=use", "https://login.example,a,scope="]
)
def test_context_that_names_no_audience_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISSUER,AUDIENCE"):
        overridden(StageSettings(name="shop"), {"jwt": text}.get)


def test_token_is_no_super_principal() -> None:
    with pytest.raises(ValueError, match="super principal"):
        StageSettings(name="shop", super_principals=("jwt:https://login.example#alice",))
