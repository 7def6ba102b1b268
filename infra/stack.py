"""The one stack of Penstock. It composes; what things are is said by the constructs it composes."""

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.alarms import Alarms
from infra.api import Api
from infra.archive import Archive
from infra.client_policies import ClientPolicies
from infra.compaction_metrics import CompactionMetrics
from infra.functions import Functions
from infra.job_alarms import JobAlarms
from infra.job_packages import JobPackages
from infra.job_run_alarms import JobRunAlarms
from infra.job_schedules import JobSchedules
from infra.repair import Repair, RepairQueues
from infra.schedules import Schedules
from infra.settings import StageSettings
from infra.spark_jobs import SparkJobs
from infra.tables import Tables
from infra.zone_alarms import ZoneAlarms
from infra.zones import Zones


class PenstockStack(Stack):
    """A whole Penstock: tables, zones, functions, API, jobs, alarms and the policies of its clients.

    `code` is the functions' code, one asset for all, and `packages` is what Spark jobs are sent with. `options` go to
    Stack as they are.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        code: lambda_.Code,
        packages: JobPackages,
        **options: object,
    ) -> None:
        super().__init__(scope, construct_id, **options)  # type: ignore[arg-type]  # Stack names each option
        tables = Tables(self, "Tables", settings=settings)
        zones = Zones(self, "Zones", settings=settings)
        archive = Archive(self, "Archive", settings=settings)
        queues = RepairQueues(self, "RepairQueues", settings=settings)
        functions = Functions(
            self,
            "Functions",
            settings=settings,
            tables=tables,
            zones=zones,
            archive=archive,
            queues=queues,
            code=code,
        ).by_name
        api = Api(self, "Api", settings=settings, functions=functions)
        Schedules(self, "Schedules", settings=settings, functions=functions)
        Repair(self, "Repair", settings=settings, tables=tables, queues=queues, replicate=functions["replicate"])
        spark = SparkJobs(
            self,
            "Jobs",
            settings=settings,
            packages=packages,
            tables=tables,
            zones=zones,
            archive=archive,
            queues=queues,
        )
        if spark.application is not None:
            JobSchedules(self, "JobSchedules", settings=settings, application=spark.application, jobs=spark.jobs)
        policies = ClientPolicies(self, "ClientPolicies", settings=settings, api=api)
        if settings.has_alarms:
            Alarms(self, "Alarms", settings=settings, functions=functions)
            ZoneAlarms(self, "ZoneAlarms", settings=settings)
            JobAlarms(self, "JobAlarms", settings=settings)
            CompactionMetrics(self, "CompactionMetrics", settings=settings, log_group=spark.log_group)
            JobRunAlarms(self, "JobRunAlarms", settings=settings, application=spark.application, jobs=spark.jobs)

        self._output("ApiUrl", api.url)
        self._output("ApiId", api.api_id)
        self._output("ProducePolicyArn", policies.produce.managed_policy_arn)
        self._output("ConsumePolicyArn", policies.consume.managed_policy_arn)
        self._output("TransactPolicyArn", policies.transact.managed_policy_arn)
        self._output("AdminPolicyArn", policies.admin.managed_policy_arn)
        self._output("TopicsTable", tables.topics.table_name)
        self._output("LogTable", tables.log.table_name)
        self._output("GroupsTable", tables.groups.table_name)
        for zone in zones.all:
            self._output(f"Zone{zone.name.upper()}Bucket", zone.bucket_name)
        self._output("ZoneBuckets", zones.environment)
        self._output("RepairQueueUrl", queues.repairs.queue_url)
        self._output("ArchiveBucket", archive.bucket_name)
        self._output("ResultsBucket", spark.results.bucket_name)
        if spark.catalog is not None:
            self._output("Catalog", spark.catalog.option)
        self._output("JobsLogGroup", spark.log_group.log_group_name)
        if spark.application is not None:
            self._output("JobsApplicationId", spark.application.application_id)
        for name, job in spark.jobs.items():
            self._output(f"Job{name.title()}Role", job.role_arn)
            self._output(f"Job{name.title()}Script", job.script_url)
            self._output(f"Job{name.title()}Glue", job.glue_name)

    def _output(self, name: str, value: str) -> None:
        CfnOutput(self, name, value=value)
