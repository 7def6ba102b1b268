"""The starts of deliveries of subscriptions: the function `dispatch` on the log table's stream, and a queue.

A filter passes only updates that took a push waiter out of a head. A stage without subscriptions has none, so
`dispatch` never runs and the queue stays empty. Lambda polls the queue for the function `deliver`, where a stage has
it. These pollers cost $0.26 a month on an empty queue. So they are off until the first subscription, whose creation
enables them. The same holds for the rule that runs the function `look_at_subscriptions` each five minutes.

CloudFormation writes all properties of a resource when one of them changes. So a deployment that changes these pollers
or that rule switches them off. The function `retention` enables them again within 15 minutes, where there is a
subscription.

A message that pauses is reported as failed, so that Lambda leaves it in the queue. It may come very often while a
target is down, so this queue has no dead-letter queue. SQS keeps a message for 14 days.

A batch of the stream that fails for 24 hours goes to the queue `Dead` for 14 days. An alarm rings then. It only starts
deliveries, so nothing is lost with it.
"""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.service.queues import enabling_statements, endless_queue, last_queue, poll, ring_for_messages
from penstock_cdk.service.rules import rule_statement
from penstock_cdk.service.streams import StreamSource, read_stream
from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.tables import Tables
from penstock_cdk.walls import pollers_max
from penstock_core.limits import PUSH_VISIBILITY_MS
from penstock_core.log.index import Waiter
from penstock_core.storage import keys

DISPATCH = "dispatch"
DELIVER = "deliver"
LOOK = "look_at_subscriptions"
_STREAM_BATCH = 100
_NO_LIMIT = -1  # an outage of the queue may last longer than any number of attempts
_STREAM_AGE_MAX = Duration.hours(24)  # DynamoDB keeps a stream's records no longer
_MESSAGES = 1  # of one invocation: a delivery may take all of its time
PUSH_FILTER = {
    "dynamodb": {
        "OldImage": {"sk": {"S": [keys.HEAD]}, Waiter.PUSH.value: {"N": ["1"]}},
        "NewImage": {Waiter.PUSH.value: {"N": ["0"]}},
    },
}


class PushQueues(Construct):
    """The queue of deliveries, and the one of failed batches of the stream.

    `environment` names the first one and the rule of the look.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._deliver = f"{settings.name}-{DELIVER}"
        self.dead = last_queue(self, "Dead", settings=settings)
        self.deliveries = endless_queue(
            self,
            "Deliveries",
            settings=settings,
            retry_s=PUSH_VISIBILITY_MS // 1_000,
            reason="A message that pauses comes back as if it had failed, so no number of receipts is too many.",
        )
        self._rule_name = f"{settings.name}-{LOOK.replace('_', '-')}"
        self.environment = f"{self.deliveries.queue_url},{self.deliveries.queue_arn},{self._rule_name}"

    def dispatch_statements(self) -> list[iam.PolicyStatement]:
        """Allows to send messages. Lambda sends what failed, in the function's name."""
        return [
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn])
            for queue in (self.deliveries, self.dead)
        ]

    def start_statements(self) -> list[iam.PolicyStatement]:
        """Allows to send messages, and to enable what takes them."""
        send = iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.deliveries.queue_arn])
        return [send, *self.switch_statements()]

    def switch_statements(self) -> list[iam.PolicyStatement]:
        """Allows to enable the pollers of `deliver` and the rule of the look.

        That function's name is fixed, because the function itself comes later.
        """
        return [*enabling_statements(self, self._deliver), rule_statement(self, self._rule_name)]

    def deliver_statements(self) -> list[iam.PolicyStatement]:
        """Allows to take messages, to postpone them, and to send further ones."""
        actions = ["ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility", "SendMessage"]
        return [
            iam.PolicyStatement(actions=[f"sqs:{action}" for action in actions], resources=[self.deliveries.queue_arn])
        ]


class PushSource(Construct):
    """The stream of `dispatch`, the pollers of `deliver`, and the alarm on failed batches."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        tables: Tables,
        queues: PushQueues,
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        source = StreamSource(
            pattern=PUSH_FILTER,
            batch=_STREAM_BATCH,
            window=Duration.seconds(0),
            dead=queues.dead,
            attempts_max=_NO_LIMIT,
            age_max=_STREAM_AGE_MAX,
        )
        read_stream(self, "Stream", tables=tables, function=functions[DISPATCH], source=source)
        if DELIVER in functions:
            poll(
                self,
                "Deliveries",
                queue=queues.deliveries,
                function=functions[DELIVER],
                batch=_MESSAGES,
                instances_max=pollers_max(DELIVER, settings),
                enabled=False,
            )
        if settings.has_alarms:
            description = "batches of the log table's stream, for repairs or subscriptions, failed on all attempts"
            ring_for_messages(self, "stream-dead", description, queues.dead, settings=settings)
