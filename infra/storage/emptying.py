"""Empties the buckets of a stage that keeps no data, so that `cdk destroy` can delete them.

S3 deletes no bucket that holds objects. The CDK has a way of its own (`auto_delete_objects`), which hangs on the
emulator and knows no directory buckets.
"""

from collections.abc import Sequence
from pathlib import Path

from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.settings import StageSettings
from infra.storage.zones import Zone
from infra.wildcards import acknowledge_wildcard

_TIMEOUT = Duration.minutes(15)  # for about 4,000,000 objects


class Emptying(Construct):
    """One function, and one custom resource for each bucket.

    Let whatever writes into the buckets depend on this construct: it then goes first.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: StageSettings, buckets: Sequence[Zone]
    ) -> None:
        super().__init__(scope, construct_id)
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=logs.RetentionDays[settings.log_retention],
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        statements = [
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]
            ),
            iam.PolicyStatement(actions=["cloudformation:DescribeStacks"], resources=[Stack.of(self).stack_id]),
            *(statement for bucket in buckets for statement in bucket.sweep_statements()),
        ]
        for statement in statements:
            role.add_to_policy(statement)
            for resource in statement.resources:
                if resource.endswith("/*"):
                    acknowledge_wildcard(role, resource, "Whatever the bucket holds goes with the stack.")
        function = lambda_.Function(
            self,
            "Function",
            description="Empties the buckets of Penstock when its stack is deleted",
            runtime=lambda_.Runtime(
                f"python{settings.python_version}", lambda_.RuntimeFamily.PYTHON, supports_inline_code=True
            ),
            handler="index.handler",
            code=lambda_.Code.from_inline(Path(__file__).with_name("empty_bucket.py").read_text()),
            timeout=_TIMEOUT,
            role=role,
            log_group=log_group,
        )
        for bucket in buckets:
            emptied = CustomResource(
                self,
                bucket.name.title(),
                resource_type="Custom::EmptyBucket",
                service_token=function.function_arn,
                service_timeout=_TIMEOUT,
                properties={"Bucket": bucket.bucket_name},
            )
            emptied.node.add_dependency(role)  # its policy goes after the bucket has been emptied
