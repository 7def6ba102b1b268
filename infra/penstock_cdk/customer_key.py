"""The key of the customer (AWS KMS): what takes it, what its users need, and what its policy must say.

A stage without a key of its own has what AWS encrypts with: keys that AWS owns, which cost nothing (docs/adr/0031).
docs/how-to/encrypt.md is for users. A test lists the types that could take a key and take none, each with its reason.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jsii
from aws_cdk import Annotations, Aspects, CfnResource, IAspect, Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IConstruct

from penstock_cdk.settings import StageSettings

# SQS asks KMS for a data key once in this time, for each queue and caller: 5 minutes by default, a day at most.
_QUEUE_KEY_S = 3_600

# KMS actions that a caller needs, by the action of the service that calls KMS in the caller's name. An action that is
# not here needs none: S3 deletes and lists objects, and SQS deletes messages, without the key. DynamoDB decrypts the
# table's own key for writes, too ("DynamoDB encryption at rest: monitoring its interaction with AWS KMS").
_READS, _WRITES = ("kms:Decrypt",), ("kms:Decrypt", "kms:GenerateDataKey")
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "s3:GetObject": _READS,
    "s3:PutObject": _WRITES,  # the parts of an upload are decrypted, too
    "s3express:CreateSession": _WRITES,  # in each mode ("CreateSession")
    "sqs:ReceiveMessage": _READS,
    "sqs:SendMessage": _WRITES,  # SQS checks the data key
}
_DYNAMODB_NEEDS_NONE = ("dynamodb:ListStreams", "dynamodb:DescribeStream")
# The S3 guide does not say by which name directory buckets call KMS, so both names of S3 are allowed.
_VIA: Mapping[str, tuple[str, ...]] = {"s3express": ("s3", "s3express")}


def encrypt(scope: Construct, settings: StageSettings, key: kms.IKey | None) -> None:
    """Lets each resource below `scope` take the key of the settings, and the key let in the services that use it.

    The policy of a key that this app makes gets its statements. Of any other key the app says which statements it
    needs. Without a key in the settings, this does nothing.
    """
    if settings.kms_key is None:
        return
    Aspects.of(scope).add(_TakesKey(settings.kms_key))
    if settings.restored_tables is not None:
        commands = "; ".join(settings.restored_tables.key_commands(settings.kms_key))
        Annotations.of(scope).add_warning_v2(
            "penstock:key-of-restored-tables",
            f"restored tables are outside the stack, and keep the key that they have. Give them kms_key: {commands}",
        )
    statements = key_policy(scope, settings)
    if key is None or not all(key.add_to_resource_policy(each).statement_added for each in statements):
        told = Stack.of(scope).resolve([each.to_statement_json() for each in statements])
        Annotations.of(scope).add_info_v2(
            "penstock:key-policy",
            f"this app cannot change the policy of {settings.kms_key}: see that it has these statements, or "
            f"CloudFormation cannot make the log groups (docs/how-to/encrypt.md): {json.dumps(told)}",
        )


def use_statements(
    scope: Construct, settings: StageSettings, statements: Iterable[iam.PolicyStatement]
) -> list[iam.PolicyStatement]:
    """Allows what the calls of these statements need of the key, through the services that they call and no other way.

    None without a key. KMS takes each action from a service of the stage's region alone (`kms:ViaService`).
    """
    if settings.kms_key is None:
        return []
    callers: dict[str, set[str]] = {}
    for action in (action for statement in statements for action in statement.actions):
        for needed in _needs(action):
            service = action.partition(":")[0]
            callers.setdefault(needed, set()).update(_VIA.get(service, (service,)))
    # In China the name may end in .cn, and nobody but AWS sets it.
    place = f"{Stack.of(scope).region}.amazonaws.com*"
    return [
        iam.PolicyStatement(
            actions=[needed],
            resources=[settings.kms_key],
            conditions={"StringLike": {"kms:ViaService": [f"{service}.{place}" for service in sorted(services)]}},
        )
        for needed, services in sorted(callers.items())
    ]


def key_policy(scope: Construct, settings: StageSettings) -> list[iam.PolicyStatement]:
    """The statements for services that use the key in their own name. All others use it in the name of their caller.

    A key's policy cannot name what is encrypted by it without a circle, so patterns of names take the place of ARNs.
    Logs: "Encrypt log data in CloudWatch Logs using AWS KMS". SQS and SNS tell KMS the ARN of the queue and the topic.
    """
    stack, place = Stack.of(scope), _place(scope, settings.kms_key or "")
    names = [
        f"/aws/lambda/{settings.name}-*",
        f"/aws/vendedlogs/{settings.name}/access/*",
        f"/penstock/{settings.name}/jobs*",
    ]
    if not settings.keeps_data_on_delete and settings.empties_buckets:
        names.append(f"{stack.stack_name}-*")  # of the function that empties the buckets: CloudFormation names it
    found = [
        _service_statement(
            "Logs",
            f"logs.{place.region}.amazonaws.com",
            ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*"],
            {"kms:EncryptionContext:aws:logs:arn": [place.arn("logs", f"log-group:{name}") for name in names]},
        )
    ]
    uses = ["kms:Decrypt", "kms:GenerateDataKey*"]
    if settings.has_alarms:
        queues = {"kms:EncryptionContext:aws:sqs:arn": place.arn("sqs", "*")}
        found.append(_service_statement("FailedRuns", "events.amazonaws.com", uses, queues))
        if settings.alarm_topic_arn is not None:
            topics = {"kms:EncryptionContext:aws:sns:topicArn": place.arn("sns", "*")}
            found.append(_service_statement("AlarmTopic", "cloudwatch.amazonaws.com", uses, topics))
    return found


def _needs(action: str) -> tuple[str, ...]:
    if action.startswith("dynamodb:") and action not in _DYNAMODB_NEEDS_NONE:
        return _READS
    return _NEEDS.get(action, ())


def _service_statement(name: str, service: str, actions: list[str], like: Mapping[str, Any]) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=f"Penstock{name}",
        principals=[iam.ServicePrincipal(service)],
        actions=actions,
        resources=["*"],  # in a key's policy: this key
        conditions={"ArnLike": like},
    )


@dataclass(frozen=True, slots=True)
class _Place:
    partition: str
    region: str
    account: str

    def arn(self, service: str, rest: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{rest}"


def _place(scope: Construct, key_arn: str) -> _Place:
    """Where the stage is: by the key's ARN what the stack does not know, so that statements are plain text."""
    stack = Stack.of(scope)
    if Token.is_unresolved(key_arn):
        return _Place(stack.partition, stack.region, stack.account)
    _, partition, _, region, account, _ = key_arn.split(":", 5)
    return _Place(
        partition,
        region if Token.is_unresolved(stack.region) else stack.region,
        account if Token.is_unresolved(stack.account) else stack.account,
    )


@jsii.implements(IAspect)
class _TakesKey:
    """Sets the properties by which a resource takes the key: also of resources that an app declares later."""

    def __init__(self, key_arn: str) -> None:
        self._properties = _properties(key_arn)

    def visit(self, node: IConstruct) -> None:
        """Changes the resource, if its type takes a key."""
        if isinstance(node, CfnResource):
            for path, value in self._properties.get(node.cfn_resource_type, {}).items():
                node.add_property_override(path, value)


def _properties(key_arn: str) -> Mapping[str, Mapping[str, Any]]:
    """The properties that each type of resource gets, by their paths."""
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key_arn}
    # With a key of the bucket, S3 asks KMS once for many objects. A directory bucket always has one.
    rules = [{"BucketKeyEnabled": True, "ServerSideEncryptionByDefault": by_default}]
    return {
        "AWS::DynamoDB::Table": {"SSESpecification": {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key_arn}},
        # CloudWatch has the logs of a run. EMR would keep them once more, by a key of its own.
        "AWS::EMRServerless::Application": {
            "MonitoringConfiguration.ManagedPersistenceMonitoringConfiguration": {"Enabled": False}
        },
        "AWS::Logs::LogGroup": {"KmsKeyId": key_arn},
        "AWS::S3::Bucket": {"BucketEncryption.ServerSideEncryptionConfiguration": rules},
        "AWS::S3Express::DirectoryBucket": {"BucketEncryption.ServerSideEncryptionConfiguration": rules},
        "AWS::SQS::Queue": {
            "KmsMasterKeyId": key_arn,
            "KmsDataKeyReusePeriodSeconds": _QUEUE_KEY_S,
            "SqsManagedSseEnabled": False,
        },
    }
