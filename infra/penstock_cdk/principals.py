"""The principals of a CDK app, as access rules name them."""

from typing import cast

from aws_cdk import aws_iam as iam


def principal_name(given: iam.IGrantable | str) -> str:
    """The ARN of a role or user, or of what runs as a role. Text stays as it is: an ARN, or a pattern of them.

    Raises ValueError for a principal that has no ARN, such as a service.
    """
    if isinstance(given, str):
        return given
    principal = given.grant_principal
    for attribute in ("role_arn", "user_arn", "arn"):
        if hasattr(principal, attribute):
            return cast(str, getattr(principal, attribute))
    raise ValueError(f"{given} has no ARN that an access rule could name: give a role, a user, or an ARN as text")
