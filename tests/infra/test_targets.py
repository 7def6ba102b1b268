"""The role under which the service calls the targets of subscriptions: it may nothing, and few may assume it."""

from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Template

from penstock_cdk.service.targets import TargetsRole
from penstock_cdk.settings import STAGES
from tests.infra.templates import name_of, of_type

pytestmark = pytest.mark.synth

NETWORKS = ("127.0.0.0/8", "::1/128")


def function(stack: Stack, name: str) -> lambda_.Function:
    code = lambda_.Code.from_inline("def handler(event, context): pass")
    return lambda_.Function(stack, name, runtime=lambda_.Runtime.PYTHON_3_13, code=code, handler="index.handler")


def resources_of(stack: Stack) -> dict[str, Any]:
    return dict(Template.from_stack(stack).to_json().get("Resources", {}))


def test_role_has_no_policy_and_trusts_these_functions_alone() -> None:
    stack = Stack()
    TargetsRole(stack, "Targets", settings=STAGES["prod"]).trust([function(stack, name) for name in ("One", "Two")])
    roles = of_type(resources_of(stack), "AWS::IAM::Role")
    [role] = [role for name, role in roles.items() if name.startswith("Targets")]
    assert not {"ManagedPolicyArns", "Policies"} & set(role)
    assert name_of(role["RoleName"]) == "penstock-targets-<AWS::Region>"
    trusted = [each for each in role["AssumeRolePolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert {each["Action"] for each in trusted} == {"sts:AssumeRole"}
    assert [name_of(each["Principal"]["AWS"])[:4] for each in trusted] == ["<One", "<Two"]


def test_role_may_assume_the_roles_of_mirrors_alone() -> None:
    stack, wanted = Stack(), ("arn:aws:iam::123456789012:role/mirror",)
    settings = replace(STAGES["prod"], mirror_roles=wanted)
    TargetsRole(stack, "Targets", settings=settings).trust([function(stack, "One")])
    roles = of_type(resources_of(stack), "AWS::IAM::Role")
    [role] = [role for name, role in roles.items() if name.startswith("Targets")]
    [policy] = role["Policies"]
    [statement] = policy["PolicyDocument"]["Statement"]
    assert (statement["Action"], statement["Resource"]) == ("sts:AssumeRole", wanted[0])


@pytest.mark.parametrize("role", ["*", "arn:aws:iam::123456789012:role/*", "arn:aws:iam::123456789012:user/a"])
def test_mirror_role_is_one_role(role: str) -> None:
    with pytest.raises(ValueError, match="give an ARN such as"):
        replace(STAGES["prod"], mirror_roles=(role,))


def test_no_function_means_no_role() -> None:
    stack = Stack()
    TargetsRole(stack, "Targets", settings=STAGES["prod"]).trust([])
    assert resources_of(stack) == {}


def test_statement_allows_to_assume_this_role_and_no_other() -> None:
    stack = Stack()
    role = TargetsRole(stack, "Targets", settings=STAGES["prod"])
    statement = stack.resolve(role.assume_statement().to_statement_json())
    assert statement["Action"] == "sts:AssumeRole"
    assert name_of(statement["Resource"]) == name_of(stack.resolve(role.role_arn))
    assert name_of(statement["Resource"]).endswith(":role/penstock-targets-<AWS::Region>")


@pytest.mark.parametrize(("stage", "networks"), [("local", NETWORKS), ("dev", ()), ("prod", ())])
def test_only_the_local_stage_lets_endpoints_be_on_your_machine(stage: str, networks: tuple[str, ...]) -> None:
    stack = Stack()
    role = TargetsRole(stack, "Targets", settings=STAGES[stage])
    found = name_of(stack.resolve(role.environment))
    assert found == ",".join((name_of(stack.resolve(role.role_arn)), *networks))
