"""The permission to enable a rule of EventBridge that is off until its stage needs it."""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct


def rule_statement(scope: Construct, rule_name: str) -> iam.PolicyStatement:
    """Allows to enable the rule. Its name is fixed, because the rule itself comes after the functions.

    AWS names a rule of the default bus without the bus, and the emulator names the bus.
    """
    rules = [
        Stack.of(scope).format_arn(service="events", resource="rule", resource_name=name)
        for name in (rule_name, f"default/{rule_name}")
    ]
    return iam.PolicyStatement(actions=["events:EnableRule"], resources=rules)
