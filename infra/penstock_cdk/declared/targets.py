"""The targets of subscriptions: how the API names each, and the policy of it that lets the deliveries in.

Deliveries run under a role that may do nothing by itself (docs/protocol/push). So a target's own policy names that
role.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from penstock_cdk.declared.topic import Topic
from penstock_cdk.service.targets import TargetsRole

Target = lambda_.IFunction | sqs.IQueue | events.IEventBus | Topic
_DOOR = "Deliveries"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTarget:
    """A target that lets the deliveries in: its object in the API, and the policies that must be there first."""

    document: dict[str, str]
    policies: Sequence[IDependable] = ()


def open_target(scope: Construct, target: Target, role: TargetsRole) -> OpenTarget:
    """Lets the role in by the target's policy, once the role is there.

    Raises ValueError for a queue of another app, whose policy this app cannot change.
    """
    if isinstance(target, Topic):
        return OpenTarget(document={"topic": target.topic_name})
    if hasattr(target, "event_bus_arn"):
        return _bus(scope, cast(events.IEventBus, target), role)
    if hasattr(target, "queue_arn"):
        return _queue(scope, cast(sqs.IQueue, target), role)
    return _function(scope, target, role)


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
