"""The schedules of Spark jobs, in EventBridge. A schedule is off unless the stage's settings name the job."""

import json
from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from penstock_cdk.jobs.spark_application import SparkApplication
from penstock_cdk.jobs.spark_jobs import SparkJob
from penstock_cdk.settings import StageSettings

# replay has no schedule: an operator starts it.
RATES: Mapping[str, str] = {
    "compact": "rate(1 hour)",
    "archive": "rate(1 day)",
    "analyze": "rate(1 day)",
    "sweep": "rate(7 days)",
}
_WINDOW_MINUTES = 15
_MINUTES_MAX = 720


class JobSchedules(Construct):
    """One schedule per job of `RATES` that the stage has, `<stage>-<job>`. It starts a run on EMR.

    A failed start is not retried, because the next one is due anyway. An operator may turn a schedule on or off in the
    console, until the next deployment.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        application: SparkApplication,
        jobs: Mapping[str, SparkJob],
    ) -> None:
        super().__init__(scope, construct_id)
        due = {name: job for name, job in jobs.items() if name in RATES}
        may_start = iam.PolicyDocument(
            statements=[
                iam.PolicyStatement(actions=["emr-serverless:StartJobRun"], resources=[application.arn]),
                iam.PolicyStatement(
                    actions=["iam:PassRole"],
                    resources=[job.role_arn for job in due.values()],
                    conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
                ),
            ]
        )
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"),
            inline_policies={"Penstock": may_start},
        )
        start = f"arn:{Stack.of(self).partition}:scheduler:::aws-sdk:emrserverless:startJobRun"
        for name, job in due.items():
            scheduler.CfnSchedule(
                self,
                name.title(),
                name=f"{settings.name}-{name}",
                description=f"Runs Penstock's job {name}",
                schedule_expression=RATES[name],
                flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(
                    mode="FLEXIBLE", maximum_window_in_minutes=_WINDOW_MINUTES
                ),
                state="ENABLED" if name in settings.scheduled_jobs else "DISABLED",
                target=scheduler.CfnSchedule.TargetProperty(
                    arn=start,
                    role_arn=role.role_arn,
                    input=_run(settings, application, name, job),
                    retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(maximum_retry_attempts=0),
                ),
            )


def _run(settings: StageSettings, application: SparkApplication, name: str, job: SparkJob) -> str:
    """Returns the parameters of StartJobRun. The scheduler's execution id as token prevents a second run."""
    return json.dumps(
        {
            "ApplicationId": application.application_id,
            "ClientToken": "<aws.scheduler.execution-id>",
            "ExecutionRoleArn": job.role_arn,
            "ExecutionTimeoutMinutes": _MINUTES_MAX,
            "JobDriver": {"SparkSubmit": {"EntryPoint": job.script_url}},
            "Name": f"{settings.name}-{name}",
        }
    )
