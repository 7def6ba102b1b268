"""The two sources of repairs for the function `replicate`, the log table's stream and the repair queue.

A filter on the stream passes only heads with a missing copy, so a healthy append invokes nothing. The heads of ten
seconds come in one batch, and `replicate` asks the queue to bring them back `REPAIR_DELAY_MS` later.

A repair that fails on all attempts goes to a dead-letter queue for 14 days, and an alarm rings. It shares that queue,
and so the alarm, with others of its kind: messages with those of timers.py, batches of the stream with those of
push.py. The index still says that the copy is missing, so the scrub finds it.
"""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.service.queues import poll, work_queue
from penstock_cdk.service.streams import StreamSource, read_stream
from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.tables import Tables
from penstock_cdk.walls import pollers_max

REPLICATE = "replicate"
_STREAM_BATCH = 250
_STREAM_WINDOW = Duration.seconds(10)
_STREAM_ATTEMPTS_MAX = 5
_STREAM_AGE_MAX = Duration.hours(1)
_QUEUE_BATCH = 5
_QUEUE_ATTEMPTS_MAX = 50
# Pages have no such attribute. An append that every zone confirmed writes "0".
STREAM_FILTER = {
    "dynamodb": {"NewImage": {"sk": {"S": ["head"]}, "under_replicated": {"N": [{"anything-but": ["0"]}]}}}
}


class RepairQueues(Construct):
    """The repair queue. Its messages that fail go to `dead`, and the batches of the stream to `dead_stream`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        dead: sqs.Queue,
        dead_stream: sqs.Queue,
    ) -> None:
        super().__init__(scope, construct_id)
        self.dead_stream = dead_stream
        self.repairs = work_queue(
            self,
            "Repairs",
            settings=settings,
            retry_s=settings.repair_retry_s,
            attempts_max=_QUEUE_ATTEMPTS_MAX,
            dead=dead,
        )


class Repair(Construct):
    """The two event sources of `replicate`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        tables: Tables,
        queues: RepairQueues,
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        replicate = functions[REPLICATE]
        source = StreamSource(
            pattern=STREAM_FILTER,
            batch=_STREAM_BATCH,
            window=_STREAM_WINDOW,
            dead=queues.dead_stream,
            attempts_max=_STREAM_ATTEMPTS_MAX,
            age_max=_STREAM_AGE_MAX,
        )
        read_stream(self, "Stream", tables=tables, function=replicate, source=source)
        most = pollers_max(REPLICATE, settings)
        poll(self, "Queue", queue=queues.repairs, function=replicate, batch=_QUEUE_BATCH, instances_max=most)
