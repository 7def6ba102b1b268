"""The queues of a stage, Lambda's pollers on them, and the alarm on messages that failed on all attempts.

These are functions and no construct: each resource keeps its place in the tree, and so its logical id.
"""

from collections.abc import Sequence

from aws_cdk import Acknowledgment, ArnFormat, Duration, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.settings import StageSettings

_KEPT = Duration.days(14)


def work_queue(scope: Construct, construct_id: str, *, retry_s: int, attempts_max: int, dead: sqs.Queue) -> sqs.Queue:
    """Makes a queue whose messages come back after `retry_s`. After `attempts_max` attempts, they go to `dead`."""
    return _queue(
        scope,
        construct_id,
        visibility_timeout=Duration.seconds(retry_s),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=attempts_max),
    )


def last_queue(
    scope: Construct,
    construct_id: str,
    *,
    reason: str = "This queue is a dead-letter queue itself.",
    enforce_ssl: bool | None = None,
) -> sqs.Queue:
    """Makes a queue that has no dead-letter queue for this `reason`.

    Set `enforce_ssl` where AWS sends to the queue by a policy of its own: `require_tls` would set another one.
    """
    own = {} if enforce_ssl is None else {"enforce_ssl": enforce_ssl}
    queue = _queue(scope, construct_id, **own)
    Validations.of(queue).acknowledge(Acknowledgment(id="AwsSolutions-SQS3", reason=reason))
    return queue


def endless_queue(scope: Construct, construct_id: str, *, reason: str, retry_s: int) -> sqs.Queue:
    """Makes a queue whose messages come back after `retry_s`, until they are 14 days old. `reason` tells why."""
    queue = _queue(scope, construct_id, visibility_timeout=Duration.seconds(retry_s))
    Validations.of(queue).acknowledge(Acknowledgment(id="AwsSolutions-SQS3", reason=reason))
    return queue


def poll(
    scope: Construct,
    construct_id: str,
    *,
    queue: sqs.Queue,
    function: lambda_.IFunction,
    batch: int,
    instances_max: int,
    enabled: bool | None = None,
) -> None:
    """Lets Lambda poll the queue for the function, in `instances_max` instances of it at once.

    A mapping is on unless `enabled` says otherwise.
    """
    mapping = lambda_.CfnEventSourceMapping(
        scope,
        construct_id,
        function_name=function.function_name,
        event_source_arn=queue.queue_arn,
        batch_size=batch,
        enabled=enabled,
        scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=instances_max),
        function_response_types=["ReportBatchItemFailures"],
    )
    depend_on_role(mapping, function)


def enabling_statements(scope: Construct, function_name: str) -> list[iam.PolicyStatement]:
    """Allows to enable Lambda's pollers of the function, or of its aliases, and of no other function."""
    stack, with_colon = Stack.of(scope), ArnFormat.COLON_RESOURCE_NAME
    function_arn = stack.format_arn(
        service="lambda", resource="function", resource_name=function_name, arn_format=with_colon
    )
    mappings = stack.format_arn(
        service="lambda", resource="event-source-mapping", resource_name="*", arn_format=with_colon
    )
    return [
        iam.PolicyStatement(actions=["lambda:ListEventSourceMappings"], resources=["*"]),
        iam.PolicyStatement(
            actions=["lambda:UpdateEventSourceMapping"],
            resources=[mappings],
            conditions={"ArnLike": {"lambda:FunctionArn": [function_arn, f"{function_arn}:*"]}},
        ),
    ]


def depend_on_role(mapping: lambda_.CfnEventSourceMapping, function: lambda_.IFunction) -> None:
    """Makes the mapping after the role: Lambda refuses a mapping while its role may not read the source."""
    if function.role is not None:
        mapping.node.add_dependency(function.role)


def ring_for_messages(
    scope: Construct, name: str, description: str, queue: sqs.Queue, *, settings: StageSettings
) -> None:
    """Makes the alarm `<stage>-<name>`, which rings while the queue has messages."""
    ring(
        scope,
        name,
        description,
        queue.metric_approximate_number_of_messages_visible(period=Duration.minutes(1), statistic="Maximum"),
        settings=settings,
    )


def require_tls(scope: Construct, construct_id: str, queues: Sequence[sqs.Queue]) -> None:
    """Refuses requests without TLS to these queues, by one policy: CloudFormation takes 500 resources of a stack.

    CloudFormation sets the policy on each of them, so its statement names none.
    """
    statement = iam.PolicyStatement(
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["sqs:*"],
        resources=["*"],
        conditions={"Bool": {"aws:SecureTransport": "false"}},
    )
    sqs.CfnQueuePolicy(
        scope,
        construct_id,
        queues=[each.queue_url for each in queues],
        policy_document=iam.PolicyDocument(statements=[statement]),
    )


def _queue(scope: Construct, construct_id: str, **options: object) -> sqs.Queue:
    """Makes a queue that CloudFormation names: SQS refuses a name for 60 s after its queue was deleted."""
    return sqs.Queue(
        scope,
        construct_id,
        retention_period=_KEPT,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        **options,  # type: ignore[arg-type]  # Queue names each option
    )
