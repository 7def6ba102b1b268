"""The queues of a stage, Lambda's pollers on them, and the alarm on messages that failed on all attempts.

These are functions and no construct: each resource keeps its place in the tree, and so its logical id.
"""

from aws_cdk import Acknowledgment, ArnFormat, Duration, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.settings import StageSettings

_KEPT = Duration.days(14)


def work_queue(
    scope: Construct, construct_id: str, *, settings: StageSettings, retry_s: int, attempts_max: int, dead: sqs.Queue
) -> sqs.Queue:
    """Makes a queue whose messages come back after `retry_s`. After `attempts_max` attempts, they go to `dead`."""
    return _queue(
        scope,
        construct_id,
        settings,
        visibility_timeout=Duration.seconds(retry_s),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=attempts_max),
    )


def last_queue(
    scope: Construct,
    construct_id: str,
    *,
    settings: StageSettings,
    reason: str = "This queue is a dead-letter queue itself.",
) -> sqs.Queue:
    """Makes a queue that has no dead-letter queue for this `reason`."""
    return endless_queue(scope, construct_id, settings=settings, reason=reason)


def endless_queue(
    scope: Construct, construct_id: str, *, settings: StageSettings, reason: str, retry_s: int | None = None
) -> sqs.Queue:
    """Makes a queue whose messages come back after `retry_s`, until they are 14 days old. `reason` tells why."""
    hidden = {} if retry_s is None else {"visibility_timeout": Duration.seconds(retry_s)}
    queue = _queue(scope, construct_id, settings, **hidden)
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


def _queue(scope: Construct, construct_id: str, settings: StageSettings, **options: object) -> sqs.Queue:
    """Makes a queue that CloudFormation names: SQS refuses a name for 60 s after its queue was deleted."""
    return sqs.Queue(
        scope,
        construct_id,
        retention_period=_KEPT,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=settings.enforces_tls,
        **options,  # type: ignore[arg-type]  # Queue names each option
    )
