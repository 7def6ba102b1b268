"""The EMR Serverless application that runs the jobs. Between runs it has no workers and costs nothing.

Its defaults cover all that a run needs but script, arguments and role: Penstock's packages, their dependencies, the
version of Python, the storage, and the size of workers. A run may override each by `--conf`.
"""

from collections.abc import Mapping

from aws_cdk import CfnTag
from aws_cdk import aws_emrserverless as emrserverless
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from penstock_cdk.settings import StageSettings

_FOLDER = "penstock_dependencies"  # a worker unpacks the archive to this folder of its directory
_PYTHON = "/usr/bin/python3.11"
_IDLE_MINUTES = 5
_GB_PER_VCPU = 4


class SparkApplication(Construct):
    """A Spark application that keeps no workers ready. It stops after 5 minutes without a run."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        release: str,
        environment: Mapping[str, str],
        packages: s3_assets.Asset,
        dependencies: s3_assets.Asset,
        log_group: logs.LogGroup,
    ) -> None:
        super().__init__(scope, construct_id)
        self._application = emrserverless.CfnApplication(
            self,
            "Application",
            name=settings.name,
            type="SPARK",
            release_label=release,
            architecture="ARM64" if settings.architecture == "arm64" else "X86_64",
            auto_start_configuration=emrserverless.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emrserverless.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=_IDLE_MINUTES
            ),
            maximum_capacity=emrserverless.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{settings.emr_vcpus_max} vCPU", memory=f"{settings.emr_vcpus_max * _GB_PER_VCPU} GB"
            ),
            monitoring_configuration=emrserverless.CfnApplication.MonitoringConfigurationProperty(
                cloud_watch_logging_configuration=emrserverless.CfnApplication.CloudWatchLoggingConfigurationProperty(
                    enabled=True, log_group_name=log_group.log_group_name
                )
            ),
            runtime_configuration=[
                emrserverless.CfnApplication.ConfigurationObjectProperty(
                    classification="spark-defaults", properties=_defaults(environment, packages, dependencies)
                )
            ],
            tags=[CfnTag(key="penstock", value=settings.name)],
        )

    @property
    def application_id(self) -> str:
        """The id that starts a run."""
        return self._application.attr_application_id

    @property
    def arn(self) -> str:
        """The resource of permissions on the application."""
        return self._application.attr_arn


def _defaults(
    environment: Mapping[str, str], packages: s3_assets.Asset, dependencies: s3_assets.Asset
) -> dict[str, str]:
    shared = {"PYTHONPATH": f"./{_FOLDER}", "PYSPARK_PYTHON": _PYTHON}
    driver = {**shared, "PYSPARK_DRIVER_PYTHON": _PYTHON, **environment}
    return {
        "spark.submit.pyFiles": packages.s3_object_url,
        "spark.archives": f"{dependencies.s3_object_url}#{_FOLDER}",
        **{f"spark.emr-serverless.driverEnv.{name}": value for name, value in driver.items()},
        **{f"spark.executorEnv.{name}": value for name, value in shared.items()},
        "spark.driver.cores": "2",
        "spark.driver.memory": "6g",  # Spark adds a tenth: below the 8 GB of the worker
        "spark.executor.cores": "4",
        "spark.executor.memory": "10g",  # Python workers use the rest of 16 GB
        "spark.executor.memoryOverhead": "4g",
        "spark.executor.instances": "1",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "12",
    }
