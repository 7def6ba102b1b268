"""The function that CloudFormation calls for what a template declares (functions/penstock_handlers/provision.py).

A stage that declares nothing does not have it. CloudFormation waits a minute for its answer, which is longer than the
function may run. Lambda does not repeat an event that failed, and drops one that could not start in that minute: the
stack may have rolled back by then. Otherwise, Lambda would keep a throttled event for 6 hours.
"""

from collections.abc import Mapping
from typing import Any

from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.service.function_role import PROVISION_GRANTS
from penstock_cdk.service.functions import Functions
from penstock_cdk.service.targets import TargetsRole

PROVISION = "provision"
_SERVICE_TIMEOUT = Duration.seconds(60)
_ON_DELETE = {RemovalPolicy.RETAIN: "retain", RemovalPolicy.DESTROY: "destroy"}


class Provision(Construct):
    """The function, and the custom resources that it serves."""

    def __init__(self, scope: Construct, construct_id: str, *, functions: Functions, targets: TargetsRole) -> None:
        super().__init__(scope, construct_id)
        self._function = functions.add(PROVISION, PROVISION_GRANTS)
        self._function.configure_async_invoke(retry_attempts=0, max_event_age=_SERVICE_TIMEOUT)
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
