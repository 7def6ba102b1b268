"""The two sources of repairs for the function `replicate`, the log table's stream and the repair queue.

A filter on the stream passes only heads with a missing copy, so a healthy append invokes nothing. The heads of ten
seconds come in one batch, and `replicate` asks the queue to bring them back `REPAIR_DELAY_MS` later.

A repair that fails on all attempts goes to a dead-letter queue for 14 days, and an alarm rings. The index still says
that the copy is missing, so the scrub finds it.
"""

import json

from aws_cdk import Acknowledgment, Duration, Validations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.alarm_action import ring
from infra.settings import StageSettings
from infra.storage.tables import Tables

_STREAM_BATCH = 250
_STREAM_WINDOW = Duration.seconds(10)
_STREAM_ATTEMPTS_MAX = 5
_STREAM_AGE_MAX = Duration.hours(1)
_QUEUE_BATCH = 5
_QUEUE_ATTEMPTS_MAX = 50
_KEPT = Duration.days(14)
# Pages have no such attribute. An append that every zone confirmed writes "0".
STREAM_FILTER = {
    "dynamodb": {"NewImage": {"sk": {"S": ["head"]}, "under_replicated": {"N": [{"anything-but": ["0"]}]}}}
}


class RepairQueues(Construct):
    """The repair queue, its dead-letter queue, and the dead-letter queue of the stream."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.dead_repairs = self._queue("DeadRepairs")
        self.dead_stream = self._queue("DeadStream")
        for queue in (self.dead_repairs, self.dead_stream):
            Validations.of(queue).acknowledge(
                Acknowledgment(id="AwsSolutions-SQS3", reason="This queue is a dead-letter queue itself.")
            )
        self.repairs = self._queue(
            "Repairs",
            visibility_timeout=Duration.seconds(settings.repair_retry_s),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_repairs, max_receive_count=_QUEUE_ATTEMPTS_MAX),
        )

    def _queue(self, construct_id: str, **options: object) -> sqs.Queue:
        """Makes a queue that CloudFormation names: SQS refuses a name for 60 s after its queue was deleted."""
        return sqs.Queue(
            self,
            construct_id,
            retention_period=_KEPT,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=self._settings.enforces_tls,
            **options,  # type: ignore[arg-type]  # Queue names each option
        )


class Repair(Construct):
    """The two event sources of `replicate`, and the alarms on its dead-letter queues."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        tables: Tables,
        queues: RepairQueues,
        replicate: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        stream = lambda_.CfnEventSourceMapping(
            self,
            "Stream",
            function_name=replicate.function_name,
            event_source_arn=tables.log.table_stream_arn,
            starting_position="TRIM_HORIZON",
            batch_size=_STREAM_BATCH,
            maximum_batching_window_in_seconds=_STREAM_WINDOW.to_seconds(),
            filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
                filters=[lambda_.CfnEventSourceMapping.FilterProperty(pattern=json.dumps(STREAM_FILTER))]
            ),
            function_response_types=["ReportBatchItemFailures"],
            bisect_batch_on_function_error=True,
            maximum_retry_attempts=_STREAM_ATTEMPTS_MAX,
            maximum_record_age_in_seconds=_STREAM_AGE_MAX.to_seconds(),
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=queues.dead_stream.queue_arn)
            ),
        )
        queue = lambda_.CfnEventSourceMapping(
            self,
            "Queue",
            function_name=replicate.function_name,
            event_source_arn=queues.repairs.queue_arn,
            batch_size=_QUEUE_BATCH,
            function_response_types=["ReportBatchItemFailures"],
        )
        for mapping in (stream, queue):  # Lambda refuses a mapping while its role may not read the source
            if replicate.role is not None:
                mapping.node.add_dependency(replicate.role)
        if settings.has_alarms:
            self._watch("repairs-dead", queues.dead_repairs)
            self._watch("repair-stream-dead", queues.dead_stream)

    def _watch(self, name: str, queue: sqs.Queue) -> None:
        ring(
            self,
            name,
            "repairs of segments failed on all attempts",
            queue.metric_approximate_number_of_messages_visible(period=Duration.minutes(1), statistic="Maximum"),
            settings=self._settings,
        )
