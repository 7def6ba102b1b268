"""Direct calls: a stage that turns them on has an alias for each policy, and clients may invoke nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template

from bench.bill.synthesized import empty_shipment
from penstock_cdk import Jwt, Penstock, StageSettings
from penstock_cdk.overrides import overridden
from penstock_cdk.service.direct import ALL_FUNCTIONS
from penstock_cdk.service.functions import construct_name
from penstock_core.routes import ROUTES_OF_ALIAS, functions_of
from tests.infra.conftest import Resources, resources_of, settings_named
from tests.infra.templates import functions_in, name_of, of_type, permissions

pytestmark = pytest.mark.synth

JOBS = {alias.removeprefix("direct-").title(): alias for alias in ROUTES_OF_ALIAS}
JWT = Jwt(issuer="https://login.example", audiences=["penstock"])


@pytest.fixture(scope="module", params=["dev", "prod"])
def stack(request: pytest.FixtureRequest, make_stack_of: Callable[[StageSettings], Stack]) -> Stack:
    """A stage without versions and one with a canary, both with all that clients may reach."""
    settings = settings_named(request.param)
    return make_stack_of(replace(settings, name=f"direct-{request.param}", direct=True, jwt=JWT))


@pytest.fixture(scope="module")
def found(stack: Stack) -> dict[str, Any]:
    return dict(Template.from_stack(stack).to_json())


def _direct_aliases(resources: Resources) -> dict[str, dict[str, Any]]:
    aliases = of_type(resources, "AWS::Lambda::Alias")
    return {name: each for name, each in aliases.items() if each["Name"] in ROUTES_OF_ALIAS}


def _alias_id(function: str, alias: str) -> str:
    return f"DirectCalls{construct_name(function)}{construct_name(alias.replace('-', '_'))}"


def test_alias_is_on_the_functions_of_its_routes(found: dict[str, Any]) -> None:
    aliases = _direct_aliases(resources_of(found))
    assert {name: (name_of(each["FunctionName"]), each["Name"]) for name, each in aliases.items()} == {
        _alias_id(function, alias): (f"<Functions{construct_name(function)}Function>", alias)
        for alias in ROUTES_OF_ALIAS
        for function in functions_of(alias)
    }


def test_alias_has_the_version_of_the_release_and_moves_with_the_canary(found: dict[str, Any]) -> None:
    has_versions = "AWS::Lambda::Version" in {each["Type"] for each in found["Resources"].values()}
    for name, each in found["Resources"].items():
        if name.startswith("DirectCalls"):
            version = each["Properties"]["FunctionVersion"]
            assert (version == "$LATEST") != has_versions
            waits_for = [other for other in each.get("DependsOn", ()) if other.startswith("Releases")]
            assert ("UpdatePolicy" in each or len(waits_for) == len(ALL_FUNCTIONS)) == has_versions


@pytest.mark.parametrize("job", JOBS)
def test_policy_allows_to_invoke_the_aliases_of_its_job_only(found: dict[str, Any], job: str) -> None:
    policies = of_type(resources_of(found), "AWS::IAM::ManagedPolicy")
    [policy] = [each for name, each in policies.items() if name == f"ClientPolicies{job}"]
    invoked = {
        resource
        for action, resource in permissions(policy["PolicyDocument"]["Statement"])
        if action.startswith("lambda:")
    }
    assert invoked == {f"<{_alias_id(function, JOBS[job])}>" for function in functions_of(JOBS[job])}
    actions = {action for action, _ in permissions(policy["PolicyDocument"]["Statement"])}
    assert actions <= {"execute-api:Invoke", "lambda:InvokeFunction", "appsync:EventConnect", "appsync:EventSubscribe"}


def test_no_policy_of_clients_reaches_another_alias_a_version_or_a_whole_function(found: dict[str, Any]) -> None:
    """`Ref` of an alias is its ARN, with the name of the alias at its end: IAM takes it for nothing else."""
    aliases = {f"<{name}>" for name in _direct_aliases(resources_of(found))}
    for policy in of_type(resources_of(found), "AWS::IAM::ManagedPolicy").values():
        for action, resource in permissions(policy["PolicyDocument"]["Statement"]):
            assert resource in aliases or not action.startswith("lambda:")


def test_api_gateway_invokes_no_alias_of_direct_calls(found: dict[str, Any]) -> None:
    resources = resources_of(found)
    direct = {f"<{name}>" for name in _direct_aliases(resources)}
    for each in of_type(resources, "AWS::ApiGatewayV2::Integration").values():
        assert name_of(each["IntegrationUri"]) not in direct
    for each in of_type(resources, "AWS::Lambda::Permission").values():
        assert name_of(each["FunctionName"]) not in direct  # IAM lets clients in, and nothing else does


def test_functions_with_routes_take_direct_calls_and_the_others_do_not(found: dict[str, Any]) -> None:
    taking = {
        name
        for name, each in functions_in(resources_of(found)).items()
        if "PENSTOCK_DIRECT" in each["Environment"]["Variables"]
    }
    assert taking == {f"Functions{construct_name(name)}Function" for name in functions_of("direct-admin")}


def test_output_names_the_functions_by_account_region_and_stage(found: dict[str, Any]) -> None:
    text = name_of(found["Outputs"]["FunctionsArn"]["Value"])
    assert text.startswith("arn:<AWS::Partition>:lambda:")
    assert ":<AWS::AccountId>:function:direct-" in text


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_stage_has_nothing_of_it_when_it_is_off(make_stack_of: Callable[[StageSettings], Stack], stage: str) -> None:
    settings = replace(settings_named(stage), name=f"off-{stage}", direct=False)
    template = dict(Template.from_stack(make_stack_of(settings)).to_json())
    resources = resources_of(template)
    assert _direct_aliases(resources) == {}
    assert "FunctionsArn" not in template["Outputs"]
    assert "PENSTOCK_DIRECT" not in str(resources)
    assert "PENSTOCK_FUNCTIONS" not in str(resources)
    for policy in of_type(resources, "AWS::IAM::ManagedPolicy").values():
        assert "lambda:" not in str(policy)


@pytest.mark.parametrize("stage", ["local", "dev", "prod"])
def test_every_stage_takes_direct_calls_by_default_and_one_function_tells_them(
    template: Callable[[str], dict[str, Any]], stage: str
) -> None:
    resources = resources_of(template(stage))
    assert _direct_aliases(resources)
    telling = {
        name: name_of(each["Environment"]["Variables"]["PENSTOCK_FUNCTIONS"])
        for name, each in functions_in(resources).items()
        if "PENSTOCK_FUNCTIONS" in each["Environment"]["Variables"]
    }
    assert telling == {"FunctionsAdminFunction": name_of(template(stage)["Outputs"]["FunctionsArn"]["Value"])}


@pytest.mark.parametrize(("value", "is_on"), [("on", True), ("off", False)])
def test_context_turns_it_on_and_off(value: str, is_on: bool) -> None:
    assert overridden(replace(settings_named("dev"), direct=not is_on), {"direct": value}.get).direct is is_on


@pytest.fixture
def make_queue(tmp_path: Path) -> Callable[[bool], Penstock]:
    def make(direct: bool) -> Penstock:
        stack = Stack(App(builtin_cloud_formation_validation=False), "Shop", env=Environment(region="eu-west-1"))
        settings = replace(settings_named("prod"), direct=direct)
        return Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, tmp_path))

    return make


def test_grant_allows_the_aliases_of_the_jobs_and_the_question_for_the_functions(
    make_queue: Callable[[bool], Penstock],
) -> None:
    queue = make_queue(True)
    role = iam.Role(Stack.of(queue), "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    queue.grant_direct(role, "produce", "transact")
    resources = resources_of(dict(Template.from_stack(Stack.of(queue)).to_json()))
    [policy] = [
        each
        for each in of_type(resources, "AWS::IAM::Policy").values()
        if [name_of(name) for name in each["Roles"]] == ["<App>"]
    ]
    allowed = permissions(policy["PolicyDocument"]["Statement"])
    [(_, question)] = {each for each in allowed if each[0] == "execute-api:Invoke"}
    assert question.endswith("/$default/GET/v1/metadata")
    assert allowed - {("execute-api:Invoke", question)} == {
        ("lambda:InvokeFunction", f"<{_alias_id(function, alias)}>")
        for alias in ("direct-produce", "direct-transact")
        for function in functions_of(alias)
    }
    assert set(queue.environment) == {"PENSTOCK_URL", "PENSTOCK_FUNCTIONS"}


def test_grant_is_refused_when_it_means_nothing(make_queue: Callable[[bool], Penstock]) -> None:
    queue = make_queue(True)
    role = iam.Role(Stack.of(queue), "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    with pytest.raises(ValueError, match="give produce, consume, transact or admin"):
        queue.grant_direct(role)
    with pytest.raises(ValueError, match="job 'live' does not exist: give produce, consume, transact, admin"):
        queue.grant_direct(role, "live")


def test_grant_is_refused_when_the_stage_takes_no_direct_calls(make_queue: Callable[[bool], Penstock]) -> None:
    queue = make_queue(False)
    role = iam.Role(Stack.of(queue), "App", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    with pytest.raises(ValueError, match="takes no direct calls: give it direct=True"):
        queue.grant_direct(role, "produce")
    assert set(queue.environment) == {"PENSTOCK_URL"}
