"""The role under which the service calls the targets of subscriptions (docs/protocol/push).

It has no policy, unless the stage lists roles of other stages: it may assume these, for mirrors. Functions, queues and
buses let it in by policies of their own, and a refusal of the API tells how. The functions that call targets may assume
it, and nobody else may.
"""

from collections.abc import Sequence
from typing import cast

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.settings import StageSettings


class TargetsRole(Construct):
    """The role. Its name is fixed, because the role itself comes after the functions that it trusts.

    `environment` names it for functions, with the private networks whose endpoints they may call.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self._name = f"{settings.name}-targets-{stack.region}"  # roles of all regions share one space of names
        self.role_arn = stack.format_arn(service="iam", region="", resource="role", resource_name=self._name)
        self._role: iam.Role | None = None
        self._mirror_roles = [*settings.mirror_roles]
        self.environment = ",".join((self.role_arn, *settings.private_targets))

    def assume_statement(self) -> iam.PolicyStatement:
        """Allows to assume the role, and no other."""
        return iam.PolicyStatement(actions=["sts:AssumeRole"], resources=[self.role_arn])

    def trust(self, functions: Sequence[lambda_.Function]) -> None:
        """Makes the role, which these functions may assume. There is none without a function."""
        principals = [iam.ArnPrincipal(function.role.role_arn) for function in functions if function.role is not None]
        if principals:
            self._role = iam.Role(
                self,
                "Role",
                role_name=self._name,
                description="Penstock calls the targets of subscriptions under this role. Targets let it in.",
                assumed_by=iam.CompositePrincipal(*principals),
                inline_policies=self._mirror_policies(),
            )

    def let_assume(self, role_arn: str) -> None:
        """Lets the role assume one more role of another stage, for a mirror."""
        if role_arn not in self._mirror_roles and self._role is not None:
            self._mirror_roles.append(role_arn)
            cast(iam.CfnRole, self._role.node.default_child).policies = [
                iam.CfnRole.PolicyProperty(policy_name=name, policy_document=document)
                for name, document in (self._mirror_policies() or {}).items()
            ]

    def _mirror_policies(self) -> dict[str, iam.PolicyDocument] | None:
        if not self._mirror_roles:
            return None
        may_assume = iam.PolicyStatement(actions=["sts:AssumeRole"], resources=[*self._mirror_roles])
        return {"Mirrors": iam.PolicyDocument(statements=[may_assume])}

    def trust_also(self, function: lambda_.Function) -> None:
        """Lets one more function assume the role, if there is one."""
        if self._role is not None and self._role.assume_role_policy is not None and function.role is not None:
            self._role.assume_role_policy.add_statements(
                iam.PolicyStatement(actions=["sts:AssumeRole"], principals=[iam.ArnPrincipal(function.role.role_arn)])
            )
