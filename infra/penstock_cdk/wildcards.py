"""Tells cdk-nag which resources of policies cannot be named one by one, each with its reason."""

from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import Construct


def acknowledge_wildcard(scope: Construct, resource: str, reason: str) -> None:
    """Allows `resource`, which holds a `*`, in the policies below `scope`. Any other wildcard still fails the check."""
    written = _written(Stack.of(scope).resolve(resource))
    Validations.of(scope).acknowledge(Acknowledgment(id=f"AwsSolutions-IAM5[Resource::{written}]", reason=reason))


def _written(value: Any) -> str:
    """Spells a resolved ARN as cdk-nag does: `<LogicalId.Arn>/*`."""
    match value:
        case {"Ref": target}:
            return f"<{target}>"
        case {"Fn::GetAtt": [target, attribute]}:
            return f"<{target}.{attribute}>"
        case {"Fn::Join": [_, parts]}:
            return "".join(_written(part) for part in parts)
    return str(value)
