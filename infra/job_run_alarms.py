"""An alarm on runs of Spark jobs that fail: EMR and Glue say so as events, which a queue keeps for 14 days.

A message of the queue is the event, with the run's id. What the operator does then is in docs/jobs.md.
"""

from collections.abc import Mapping

from aws_cdk import Acknowledgment, Duration, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.alarm_action import tell_operators
from infra.settings import StageSettings
from infra.spark_application import SparkApplication
from infra.spark_jobs import SparkJob


class JobRunAlarms(Construct):
    """`<stage>-job-runs-failed`: rings for five minutes when a run has failed, whoever started it."""

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
        queue = sqs.Queue(
            self,
            "FailedRuns",
            queue_name=f"{settings.name}-job-runs-failed",
            retention_period=Duration.days(14),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=settings.enforces_tls,
        )
        Validations.of(queue).acknowledge(
            Acknowledgment(id="AwsSolutions-SQS3", reason="Nobody takes messages from it but an operator, to look.")
        )
        patterns = {
            "glue": events.EventPattern(
                source=["aws.glue"],
                detail_type=["Glue Job State Change"],
                detail={
                    "jobName": [job.glue_name for job in jobs.values()],
                    "state": ["FAILED", "TIMEOUT", "ERROR"],
                },
            )
        }
        if application is not None:
            patterns["emr"] = events.EventPattern(
                source=["aws.emr-serverless"],
                detail_type=["EMR Serverless Job Run State Change"],
                detail={"applicationId": [application.application_id], "state": ["FAILED"]},
            )
        for service, pattern in patterns.items():
            events.Rule(
                self,
                service.title(),
                rule_name=f"{settings.name}-job-runs-failed-{service}",
                description="Keeps word of runs of Penstock's jobs that failed",
                event_pattern=pattern,
                targets=[targets.SqsQueue(queue)],
            )
        alarm = cloudwatch.Alarm(
            self,
            "Alarm",
            alarm_name=f"{settings.name}-job-runs-failed",
            alarm_description="Penstock: a run of a Spark job has failed",
            metric=queue.metric_number_of_messages_sent(period=Duration.minutes(5), statistic="Sum"),
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        tell_operators(alarm, settings)
