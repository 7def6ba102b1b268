"""The Spark jobs, one per script of penstock_spark/scripts/, with application, Glue jobs, roles, logs and results.

Glue jobs: the same scripts as on EMR, for accounts that already use Glue. A job that does not run costs nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Acknowledgment, RemovalPolicy, Validations
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.jobs.job_packages import JobPackages
from penstock_cdk.jobs.job_role import JOB_GRANTS, JobRole, job_grants_of
from penstock_cdk.jobs.spark_application import SparkApplication
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.results import Catalog, Results
from penstock_cdk.storage.stage_storage import StageStorage

GLUE_LOGS = ("output", "error")  # the names that Glue gives its log groups, behind a prefix
_WORKERS = 4
_HOURS_MAX = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """The names that start a run of one job: its role, its script, and its job on Glue."""

    role_arn: str
    script_url: str
    glue_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedFiles:
    """The files that every job is sent with. `dependencies` is None where the stage has no EMR application."""

    packages: s3_assets.Asset
    requirements: s3_assets.Asset
    dependencies: s3_assets.Asset | None

    @property
    def all(self) -> list[s3_assets.Asset]:
        return [each for each in (self.packages, self.requirements, self.dependencies) if each is not None]


class SparkJobs(Construct):
    """All jobs of the stage. `application` is None where the settings name no release of EMR."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        packages: JobPackages,
        storage: StageStorage,
        repairs: sqs.Queue | None,
        wake_ups: WakeUps,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self._storage = storage
        self._repairs = repairs
        self._wake_ups = wake_ups
        self._log_prefix = f"/penstock/{settings.name}/jobs"
        self.results = Results(self, "Results", settings=settings)
        self.catalog = Catalog(self, settings=settings) if settings.has_catalog else None
        self.log_group = _log_group(self, "Logs", self._log_prefix, settings)
        of_glue = [
            _log_group(self, f"Glue{each.title()}", f"{self._log_prefix}/{each}", settings) for each in GLUE_LOGS
        ]
        self.log_group_of_glue = of_glue[0]  # of what the jobs print there
        log_groups = [self.log_group, *of_glue]
        files = self._shared_files(packages)
        self.application = self._application(files)
        self.jobs: dict[str, SparkJob] = {}
        for name, path in packages.scripts.items():
            if name not in JOB_GRANTS:
                raise ValueError(
                    f"the job {name!r} of {path} has no permissions: name it in infra/penstock_cdk/jobs/job_role.py"
                )
            scope_of_job = Construct(self, name.title())
            script = s3_assets.Asset(scope_of_job, "Script", path=str(path))
            self.jobs[name] = self._job(scope_of_job, name, script, files, log_groups)

    def _shared_files(self, packages: JobPackages) -> _SharedFiles:
        has_application = self._settings.emr_release is not None and packages.dependencies is not None
        return _SharedFiles(
            packages=s3_assets.Asset(self, "Packages", path=str(packages.packages)),
            requirements=s3_assets.Asset(self, "Requirements", path=str(packages.requirements)),
            dependencies=(
                s3_assets.Asset(self, "Dependencies", path=str(packages.dependencies)) if has_application else None
            ),
        )

    def _application(self, files: _SharedFiles) -> SparkApplication | None:
        if self._settings.emr_release is None or files.dependencies is None:
            return None
        return SparkApplication(
            self,
            "Spark",
            settings=self._settings,
            release=self._settings.emr_release,
            environment=_environment(self._options()),
            packages=files.packages,
            dependencies=files.dependencies,
            log_group=self.log_group,
        )

    def _job(
        self,
        scope: Construct,
        name: str,
        script: s3_assets.Asset,
        files: _SharedFiles,
        log_groups: Sequence[logs.LogGroup],
    ) -> SparkJob:
        role = JobRole(
            scope,
            "May",
            settings=self._settings,
            grants=job_grants_of(name, self._settings),
            storage=self._storage,
            repairs=self._repairs,
            wake_ups=self._wake_ups,
            results=self.results,
            catalog=self.catalog,
            log_groups=log_groups,
            files=[script, *files.all],
        ).role
        job = GlueJob(
            scope,
            "Glue",
            settings=self._settings,
            name=name,
            role=role,
            storage=self._options(),
            script=script,
            packages=files.packages,
            requirements=files.requirements,
            log_prefix=self._log_prefix,
        )
        return SparkJob(role_arn=role.role_arn, script_url=script.s3_object_url, glue_name=job.job_name)

    def _options(self) -> dict[str, str]:
        """The options of every script that say where the stage keeps its data."""
        tables = self._storage.tables
        return {
            "--topics-table": tables.topics.table_name,
            "--log-table": tables.log.table_name,
            "--groups-table": tables.groups.table_name,
            **({} if self._repairs is None else {"--repair-queue-url": self._repairs.queue_url}),
            "--wake-ups": self._wake_ups.hosts,
            "--zones": self._storage.zones.environment,
            "--archive": self._storage.archive.bucket_name,
            "--results": self.results.bucket_name,
            **({} if self.catalog is None else {"--catalog": self.catalog.option}),
            **({} if self._settings.registry_secret is None else {"--registry-secret": self._settings.registry_secret}),
        }


def _log_group(scope: Construct, construct_id: str, name: str, settings: StageSettings) -> logs.LogGroup:
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        retention=logs.RetentionDays[settings.log_retention],
        removal_policy=RemovalPolicy.DESTROY,
    )


def _environment(storage: Mapping[str, str]) -> dict[str, str]:
    """The same options as variables of the environment (penstock_spark/storage.py reads them)."""
    return {f"PENSTOCK_{option[2:].upper().replace('-', '_')}": value for option, value in storage.items()}


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
