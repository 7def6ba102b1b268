"""An alarm on failed runs of Spark jobs. EMR and Glue emit an event per failed run, and a queue keeps it for 14 days.

A message of the queue is the event, with the run's id. docs/how-to/jobs.md says what to do when the alarm rings.
"""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.jobs.spark_application import SparkApplication
from penstock_cdk.jobs.spark_jobs import SparkJob
from penstock_cdk.service.queues import last_queue
from penstock_cdk.settings import StageSettings


class JobRunAlarms(Construct):
    """`<stage>-job-runs-failed`: rings for five minutes after a run failed, by schedule or by hand."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        application: SparkApplication | None,
        jobs: Mapping[str, SparkJob],
    ) -> None:
        super().__init__(scope, construct_id)
        reason = "No program takes messages from this queue."
        queue = self.queue = last_queue(self, "FailedRuns", settings=settings, reason=reason)
        failed: list[dict[str, Any]] = [
            {
                "source": ["aws.glue"],
                "detail-type": ["Glue Job State Change"],
                "detail": {
                    "jobName": [job.glue_name for job in jobs.values()],
                    "state": ["FAILED", "TIMEOUT", "ERROR"],
                },
            }
        ]
        if application is not None:
            failed.append(
                {
                    "source": ["aws.emr-serverless"],
                    "detail-type": ["EMR Serverless Job Run State Change"],
                    "detail": {"applicationId": [application.application_id], "state": ["FAILED"]},
                }
            )
        rule = events.Rule(
            self,
            "Rule",
            rule_name=f"{settings.name}-job-runs-failed",
            description="Keeps the events of failed runs of Penstock's jobs",
            event_pattern=events.EventPattern(source=["aws.glue", "aws.emr-serverless"]),
            targets=[targets.SqsQueue(queue)],
        )
        resource = rule.node.default_child
        if isinstance(resource, events.CfnRule):
            # The construct cannot hold this pattern. EventBridge reads `$or` with one entry as the name of a field.
            resource.event_pattern = {"$or": failed} if len(failed) > 1 else failed[0]
        ring(
            self,
            "job-runs-failed",
            "a run of a Spark job has failed",
            queue.metric_number_of_messages_sent(period=Duration.minutes(5), statistic="Sum"),
            settings=settings,
        )
