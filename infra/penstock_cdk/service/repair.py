"""The two sources of repairs for the function `replicate`, the log table's stream and the repair queue.

A filter on the stream passes only heads with a missing copy, so a healthy append invokes nothing. The heads of ten
seconds come in one batch, and `replicate` asks the queue to bring them back `REPAIR_DELAY_MS` later.

A repair that fails on all attempts goes to a dead-letter queue for 14 days, and an alarm rings. The index still says
that the copy is missing, so the scrub finds it.
"""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.service.queues import last_queue, poll, ring_for_messages, work_queue
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
    """The repair queue, its dead-letter queue, and the dead-letter queue of the stream."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self.dead_repairs = last_queue(self, "DeadRepairs", settings=settings)
        self.dead_stream = last_queue(self, "DeadStream", settings=settings)
        self.repairs = work_queue(
            self,
            "Repairs",
            settings=settings,
            retry_s=settings.repair_retry_s,
            attempts_max=_QUEUE_ATTEMPTS_MAX,
            dead=self.dead_repairs,
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
        if settings.has_alarms:
            for name, queue in (("repairs-dead", queues.dead_repairs), ("repair-stream-dead", queues.dead_stream)):
                ring_for_messages(self, name, "repairs of segments failed on all attempts", queue, settings=settings)
