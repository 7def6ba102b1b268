"""The function that CloudFormation calls for what a template declares (functions/penstock_handlers/provision.py).

A stage that declares nothing does not have it. CloudFormation begins with all resources at once, and an account may
have 10 instances for them and for everything else. So CloudFormation waits 5 minutes for each answer. Lambda starts a
throttled event again for 4 minutes, with pauses that double from 1 s, and the function runs for 50 s at most. So no run
goes on when CloudFormation has given up: the stack may have rolled back by then. Lambda does not repeat an event that
failed. Without these bounds it would keep a throttled one for 6 hours.
"""

from collections.abc import Mapping
from typing import Any

from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.service.functions import Functions
from penstock_cdk.service.grants import PROVISION_GRANTS
from penstock_cdk.service.targets import TargetsRole

PROVISION = "provision"
_SERVICE_TIMEOUT = Duration.minutes(5)
_EVENT_AGE_MAX = Duration.minutes(4)
_ON_DELETE = {RemovalPolicy.RETAIN: "retain", RemovalPolicy.DESTROY: "destroy"}


class Provision(Construct):
    """The function, and the custom resources that it serves."""

    def __init__(self, scope: Construct, construct_id: str, *, functions: Functions, targets: TargetsRole) -> None:
        super().__init__(scope, construct_id)
        self._function = functions.add(PROVISION, PROVISION_GRANTS)
        self._function.configure_async_invoke(retry_attempts=0, max_event_age=_EVENT_AGE_MAX)
        targets.trust_also(self._function)
        self._function.add_to_role_policy(
            iam.PolicyStatement(actions=["cloudformation:DescribeStacks"], resources=[Stack.of(self).stack_id])
        )

    def resource(
        self, scope: Construct, kind: str, properties: Mapping[str, Any], removal_policy: RemovalPolicy
    ) -> CustomResource:
        """Makes the resource `Custom::Penstock<kind>`. Its attributes are `Name` and `Id`.

        Raises ValueError for a removal policy other than RETAIN and DESTROY.
        """
        if removal_policy not in _ON_DELETE:
            raise ValueError(f"{scope.node.path}: removal_policy={removal_policy.name}: give RETAIN or DESTROY")
        resource = CustomResource(
            scope,
            "Resource",
            resource_type=f"Custom::Penstock{kind}",
            service_token=self._function.function_arn,
            service_timeout=_SERVICE_TIMEOUT,
            properties={**properties, "OnDelete": _ON_DELETE[removal_policy]},
        )
        resource.node.add_dependency(self._function)
        return resource
