"""The targets of subscriptions: how the API names each, and the policy of it that lets the deliveries in.

Deliveries run under a role that may do nothing by itself (docs/protocol/push). So a target's own policy names that
role.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from penstock_cdk.declared.topic import Topic
from penstock_cdk.service.targets import TargetsRole


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStage:
    """Another stage that mirrors topics, by its URL and region, and the ARN of its role for this mirror.

    `mirror_role` of the stage makes the role. `prefix` begins the names of its topics. Clients are told `source`, the
    URL of the stage that pushes.
    """

    url: str
    region: str
    role_arn: str
    prefix: str = ""
    source: str = ""

    def target(self) -> dict[str, str]:
        """Its object in the API."""
        told = {"url": self.url, "region": self.region, "role": self.role_arn}
        return told | {name: text for name, text in (("prefix", self.prefix), ("source", self.source)) if text}


Target = lambda_.IFunction | sqs.IQueue | events.IEventBus | Topic
_DOOR = "Deliveries"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTarget:
    """A target that lets the deliveries in: its object in the API, and the policies that must be there first."""

    document: Mapping[str, str | Mapping[str, str]]
    policies: Sequence[IDependable] = ()


def open_target(scope: Construct, target: Target | MirrorStage, role: TargetsRole) -> OpenTarget:
    """Lets the role in by the target's policy, once the role is there.

    Raises ValueError for a queue of another app, whose policy this app cannot change.
    """
    if isinstance(target, Topic):
        return OpenTarget(document={"topic": target.topic_name})
    if isinstance(target, MirrorStage):
        role.let_assume(target.role_arn)
        return OpenTarget(document={"stage": target.target()}, policies=(role,))
    if hasattr(target, "event_bus_arn"):
        return _bus(scope, cast(events.IEventBus, target), role)
    if hasattr(target, "queue_arn"):
        return _queue(scope, cast(sqs.IQueue, target), role)
    return _function(scope, target, role)


def role_of_mirror(
    scope: Construct, *, name: str, source_role_arn: str, source_account: str, append_arn: str
) -> iam.Role:
    """The role under which another stage may push one mirror, and nothing else.

    It trusts one role of the other account, by its ARN, which is the external id, too. That role need not exist yet,
    because the account vouches for it.
    """
    trusted = iam.AccountPrincipal(source_account).with_conditions(
        {"ArnEquals": {"aws:PrincipalArn": source_role_arn}, "StringEquals": {"sts:ExternalId": source_role_arn}}
    )
    may_push = iam.PolicyStatement(actions=["execute-api:Invoke"], resources=[append_arn])
    return iam.Role(
        scope,
        "Role",
        role_name=name,
        description="Another stage of Penstock pushes a mirror under this role.",
        assumed_by=trusted,
        inline_policies={"Push": iam.PolicyDocument(statements=[may_push])},
    )


def _function(scope: Construct, function: lambda_.IFunction, role: TargetsRole) -> OpenTarget:
    permission = lambda_.CfnPermission(
        scope, _DOOR, action="lambda:InvokeFunction", function_name=function.function_arn, principal=role.role_arn
    )
    permission.node.add_dependency(role)
    return OpenTarget(document={"lambda": function.function_arn}, policies=(permission,))


def _queue(scope: Construct, queue: sqs.IQueue, role: TargetsRole) -> OpenTarget:
    """A queue with a key of its own has to let the role use the key, too."""
    principals = [iam.ArnPrincipal(role.role_arn)]
    added = queue.add_to_resource_policy(
        iam.PolicyStatement(principals=principals, actions=["sqs:SendMessage"], resources=[queue.queue_arn])
    )
    if added.policy_dependable is None:
        raise ValueError(f"{scope.node.path}: the app cannot change the policy of the queue {queue.node.path}")
    if isinstance(added.policy_dependable, Construct):
        added.policy_dependable.node.add_dependency(role)
    if queue.encryption_master_key is not None:
        queue.encryption_master_key.add_to_resource_policy(
            iam.PolicyStatement(principals=principals, actions=["kms:GenerateDataKey", "kms:Decrypt"], resources=["*"])
        )
    return OpenTarget(document={"sqs": queue.queue_url}, policies=(added.policy_dependable,))


def _bus(scope: Construct, bus: events.IEventBus, role: TargetsRole) -> OpenTarget:
    policy = events.CfnEventBusPolicy(
        scope,
        _DOOR,
        event_bus_name=bus.event_bus_name,
        statement_id=f"penstock-{scope.node.addr[-12:]}",
        statement={
            "Sid": f"penstock-{scope.node.addr[-12:]}",
            "Effect": "Allow",
            "Principal": {"AWS": role.role_arn},
            "Action": "events:PutEvents",
            "Resource": bus.event_bus_arn,
        },
    )
    policy.node.add_dependency(role)
    return OpenTarget(document={"event_bus": bus.event_bus_arn}, policies=(policy,))
