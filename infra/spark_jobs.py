"""The Spark jobs, one per script that there is: composes their application, Glue jobs, roles, log group and results."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from infra.archive import Archive
from infra.catalog import Catalog
from infra.glue_jobs import GlueJob
from infra.job_packages import JobPackages
from infra.job_role import JOB_GRANTS, JobRole
from infra.repair import RepairQueues
from infra.results import Results
from infra.settings import StageSettings
from infra.spark_application import SparkApplication
from infra.tables import Tables
from infra.zones import Zones

GLUE_LOGS = ("output", "error")  # Glue's names for its log groups, behind a prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """What a run of one job is started by."""

    role_arn: str
    script_url: str
    glue_name: str


class SparkJobs(Construct):
    """All jobs of the stage. `application` is None where the settings name no release of EMR."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        packages: JobPackages,
        tables: Tables,
        zones: Zones,
        archive: Archive,
        queues: RepairQueues,
    ) -> None:
        super().__init__(scope, construct_id)
        self.results = Results(self, "Results", settings=settings)
        self.catalog = Catalog(self, settings=settings) if settings.has_catalog else None
        log_prefix = f"/penstock/{settings.name}/jobs"
        self.log_group = _log_group(self, "Logs", log_prefix, settings)
        log_groups = [
            self.log_group,
            *(_log_group(self, f"Glue{each.title()}", f"{log_prefix}/{each}", settings) for each in GLUE_LOGS),
        ]
        storage = {
            "--topics-table": tables.topics.table_name,
            "--log-table": tables.log.table_name,
            "--groups-table": tables.groups.table_name,
            "--repair-queue-url": queues.repairs.queue_url,
            "--zones": zones.environment,
            "--archive": archive.bucket_name,
            "--results": self.results.bucket_name,
            **({} if self.catalog is None else {"--catalog": self.catalog.option}),
        }
        own = s3_assets.Asset(self, "Packages", path=str(packages.packages))
        requirements = s3_assets.Asset(self, "Requirements", path=str(packages.requirements))
        files = [own, requirements]
        self.application: SparkApplication | None = None
        if settings.emr_release is not None and packages.dependencies is not None:
            dependencies = s3_assets.Asset(self, "Dependencies", path=str(packages.dependencies))
            files.append(dependencies)
            self.application = SparkApplication(
                self,
                "Spark",
                settings=settings,
                release=settings.emr_release,
                environment=_environment(storage),
                packages=own,
                dependencies=dependencies,
                log_group=self.log_group,
            )
        self.jobs: dict[str, SparkJob] = {}
        for name, path in packages.scripts.items():
            if name not in JOB_GRANTS:
                raise ValueError(f"the job {name!r} of {path} may do nothing yet: name it in infra/job_role.py")
            scope_of_job = Construct(self, name.title())
            script = s3_assets.Asset(scope_of_job, "Script", path=str(path))
            role = JobRole(
                scope_of_job,
                "May",
                grants=JOB_GRANTS[name],
                tables=tables,
                zones=zones,
                archive=archive,
                repairs=queues.repairs,
                results=self.results,
                catalog=self.catalog,
                log_groups=log_groups,
                files=[script, *files],
            ).role
            job = GlueJob(
                scope_of_job,
                "Glue",
                settings=settings,
                name=name,
                role=role,
                storage=storage,
                script=script,
                packages=own,
                requirements=requirements,
                log_prefix=log_prefix,
            )
            self.jobs[name] = SparkJob(role_arn=role.role_arn, script_url=script.s3_object_url, glue_name=job.job_name)


def _log_group(scope: Construct, construct_id: str, name: str, settings: StageSettings) -> logs.LogGroup:
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        retention=logs.RetentionDays[settings.log_retention],
        removal_policy=RemovalPolicy.DESTROY,
    )


def _environment(storage: Mapping[str, str]) -> dict[str, str]:
    """The script's options by their names in the environment (penstock_spark/storage.py)."""
    return {f"PENSTOCK_{option[2:].upper().replace('-', '_')}": value for option, value in storage.items()}
