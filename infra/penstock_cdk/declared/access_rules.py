"""The access rules that grants write: a custom resource for each rule, so that two grants may share one."""

import hashlib
from collections.abc import Callable

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.declared.provision import Provision
from penstock_cdk.principals import principal_name

_ID_LENGTH = 12


class AccessRules:
    """Writes rules. `room` answers the scope of the resources, and what makes them."""

    def __init__(self, room: Callable[[], tuple[Construct, Provision]]) -> None:
        self._room = room

    def allow(self, grantee: iam.IGrantable, operation: str, *resources: str) -> None:
        """Allows the operation on these resources. A rule goes with the resource that has made it."""
        scope, provision = self._room()
        principal = principal_name(grantee)
        for resource in resources:
            place = f"{_place_of(grantee, principal)} {operation} {resource}"
            construct_id = hashlib.sha256(place.encode()).hexdigest()[:_ID_LENGTH]
            if scope.node.try_find_child(construct_id) is None:
                rule = {"principal": principal, "operation": operation, "resource": resource}
                properties = {"Rules": Stack.of(scope).to_json_string([rule])}
                provision.resource(Construct(scope, construct_id), "Acls", properties, RemovalPolicy.DESTROY)


def _place_of(grantee: iam.IGrantable, principal: str) -> str:
    """The path of the role or user in the app: the same in each synthesis, which a token is not."""
    found = grantee.grant_principal
    return found.node.path if isinstance(found, Construct) else principal
