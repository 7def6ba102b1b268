"""What starts the deliveries of delayed records: a queue of delayed messages, and a rule that runs each minute.

Both are off until the first delayed record of a stage, because Lambda's pollers cost $0.26 a month on an empty queue
(docs/adr/0039). The functions that take delayed records enable the rule, and start the first run of `promote`, both by
name. The function `promote`, once it runs, enables its own pollers. With `timers_always_on`, both are on from the
beginning, and no first run is started.

A message that fails on all attempts goes to a dead-letter queue for 14 days, and an alarm rings. The repair queue of a
stage with several zones shares it. No record is lost with a message: the run each minute promotes what is overdue.
"""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.service.queues import enabling_statements, last_queue, poll, ring_for_messages, work_queue
from penstock_cdk.service.rules import rule_statement
from penstock_cdk.settings import LIVE, StageSettings
from penstock_cdk.walls import pollers_max

PROMOTE = "promote"
_BATCH = 10
_ATTEMPTS_MAX = 10


class TimerQueues(Construct):
    """The queue of due seconds, and its dead-letter queue. `environment` names the triggers for functions."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self.dead = last_queue(self, "Dead", settings=settings)
        self.seconds = work_queue(
            self,
            "Seconds",
            settings=settings,
            retry_s=settings.timer_retry_s,
            attempts_max=_ATTEMPTS_MAX,
            dead=self.dead,
        )
        self.rule_name = f"{settings.name}-{PROMOTE}"
        called = f"{settings.name}-{PROMOTE}" + ("" if settings.canary is None else f":{LIVE}")
        self._called = "" if settings.timers_always_on else called
        self.environment = f"{self.seconds.queue_url},{self.rule_name},{self.seconds.queue_arn},{self._called}"

    def announce_statements(self) -> list[iam.PolicyStatement]:
        """Allows to send messages, to enable the rule, and to start the first run.

        The function's name is fixed, because the function itself comes later.
        """
        statements = [
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.seconds.queue_arn]),
            self.enable_statement(),
        ]
        if not self._called:
            return statements
        function_arn = Stack.of(self).format_arn(
            service="lambda",
            resource="function",
            resource_name=self._called,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        return [*statements, iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function_arn])]

    def enable_statement(self) -> iam.PolicyStatement:
        """Allows to enable the rule."""
        return rule_statement(self, self.rule_name)

    def promote_statements(self, function_name: str) -> list[iam.PolicyStatement]:
        """Allows the function to take messages, to send them again, and to enable its own pollers."""
        return [
            iam.PolicyStatement(
                actions=["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:SendMessage"],
                resources=[self.seconds.queue_arn],
            ),
            *enabling_statements(self, function_name),
        ]


class TimerSource(Construct):
    """The pollers of `promote`, and the alarm on its dead letters."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        queues: TimerQueues,
        promote: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        is_on = settings.timers_always_on
        most = pollers_max(PROMOTE, settings)
        poll(self, "Seconds", queue=queues.seconds, function=promote, batch=_BATCH, instances_max=most, enabled=is_on)
        if settings.has_alarms:
            description = "messages that start repairs or deliveries of delayed records failed on all attempts"
            ring_for_messages(self, "messages-dead", description, queues.dead, settings=settings)
