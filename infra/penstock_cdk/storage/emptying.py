"""Empties the buckets of a stage that keeps no data, so that `cdk destroy` can delete them, and drops its database.

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

from penstock_cdk.customer_key import use_statements
from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.results import Catalog
from penstock_cdk.storage.zones import Zone
from penstock_cdk.wildcards import acknowledge_wildcard

_TIMEOUT = Duration.minutes(15)  # for about 4,000,000 objects


class Emptying(Construct):
    """One function, one custom resource for each bucket, and one for the database of the catalog.

    Let whatever writes into the buckets depend on this construct: it then goes first.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        buckets: Sequence[Zone],
        catalog: Catalog | None = None,
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
            *(statement for bucket in buckets for statement in bucket.emptying_statements()),
            *([] if catalog is None else [catalog.drop_statement()]),
        ]
        for statement in (*statements, *use_statements(self, settings, statements)):
            role.add_to_policy(statement)
            for resource in statement.resources:
                if resource.endswith("/*"):
                    acknowledge_wildcard(role, resource, "Whatever the stack holds goes with it.")
        function = lambda_.Function(
            self,
            "Function",
            description="Empties the buckets of Penstock, and drops its database, when its stack is deleted",
            runtime=lambda_.Runtime(
                f"python{settings.python_version}", lambda_.RuntimeFamily.PYTHON, supports_inline_code=True
            ),
            handler="index.handler",
            code=lambda_.Code.from_inline(Path(__file__).with_name("empty_stage.py").read_text()),
            timeout=_TIMEOUT,
            role=role,
            log_group=log_group,
        )
        places = [(bucket.name.title(), "EmptyBucket", {"Bucket": bucket.bucket_name}) for bucket in buckets]
        if catalog is not None:
            places.append(("Catalog", "DropDatabase", {"Database": catalog.database}))
        for name, kind, properties in places:
            emptied = CustomResource(
                self,
                name,
                resource_type=f"Custom::{kind}",
                service_token=function.function_arn,
                service_timeout=_TIMEOUT,
                properties=properties,
            )
            emptied.node.add_dependency(role)  # its policy goes after the place has been emptied
