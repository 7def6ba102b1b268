"""Glue jobs: the same scripts as on EMR, for accounts that already use Glue. A job that does not run costs nothing."""

import json
from collections.abc import Mapping

from aws_cdk import Acknowledgment, Validations
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from penstock_cdk.settings import StageSettings

_WORKERS = 4
_HOURS_MAX = 12


class GlueJob(Construct):
    """One Spark job, `<stage>-<name>`, with 4 workers of 4 vCPU and 16 GB unless a run asks for more.

    `storage` holds the options of the script that say where the storage is. Glue adds its own arguments to those of a
    script, so these options come as one JSON list (penstock_spark/job.py reads it). The script prints to the log group
    `<log_prefix>/output`, and Spark logs to `<log_prefix>/error`. Glue has these names since 5.0 (its guide, "Logging
    for AWS Glue jobs").
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        name: str,
        role: iam.Role,
        storage: Mapping[str, str],
        script: s3_assets.Asset,
        packages: s3_assets.Asset,
        requirements: s3_assets.Asset,
        log_prefix: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.job_name = f"{settings.name}-{name}"
        job = glue.CfnJob(
            self,
            "Job",
            name=self.job_name,
            description=f"Penstock {name}",
            role=role.role_arn,
            command=glue.CfnJob.JobCommandProperty(
                name="glueetl", python_version="3", script_location=script.s3_object_url
            ),
            glue_version=settings.glue_version,
            worker_type="G.1X",
            number_of_workers=_WORKERS,
            timeout=_HOURS_MAX * 60,
            max_retries=0,
            execution_property=glue.CfnJob.ExecutionPropertyProperty(max_concurrent_runs=1),
            default_arguments={
                "--extra-py-files": packages.s3_object_url,
                "--python-modules-installer-option": "-r",
                "--additional-python-modules": requirements.s3_object_url,
                "--penstock-storage": json.dumps([part for option in storage.items() for part in option]),
                "--custom-logGroup-prefix": log_prefix,
            },
            tags={"penstock": settings.name},
        )
        for rule, what in (("GL1", "Logs"), ("GL3", "Bookmarks, which the jobs do not use,")):
            Validations.of(job).acknowledge(
                Acknowledgment(
                    id=f"AwsSolutions-{rule}",
                    reason=f"{what} are encrypted by AWS; a key of your own costs a dollar a month when idle.",
                )
            )
