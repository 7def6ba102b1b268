"""The permissions of each Spark job, and the role that EMR Serverless and Glue assume to run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.customer_key import use_statements
from penstock_cdk.service.function_role import INLINE
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.results import Catalog, Results
from penstock_cdk.storage.stage_storage import StageStorage
from penstock_cdk.storage.tables import Tables
from penstock_cdk.wildcards import acknowledge_wildcard


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGrants:
    """The permissions of one job.

    `topics`, `log` and `groups` are DynamoDB actions on those tables, without the prefix `dynamodb:`.
    `writes_zones` allows to put segments into the zones, `compacts` to put them into the archive. `sweeps_stores`
    allows to list and delete segments in zones and archive. `changes_zone_states` and `keeps_cursor` allow writes of
    those items of the topics table. `wakes_readers` allows to publish wake-ups. `results` is the folder of the results
    bucket that the job reads and writes. `catalog` says whether the job reads or writes the tables of Glue's catalog.
    With `reads_schemas` it opens the schema registries of the settings.
    """

    topics: tuple[str, ...]
    log: tuple[str, ...]
    groups: tuple[str, ...] = ()
    writes_zones: bool = False
    sweeps_stores: bool = False
    compacts: bool = False
    sends_repairs: bool = False
    changes_zone_states: bool = False
    keeps_cursor: bool = False
    wakes_readers: bool = False
    results: str | None = None
    catalog: Literal["reads", "writes"] | None = None
    reads_schemas: bool = False


_READ_TOPICS = ("GetItem", "Scan")
_READ_LOG = ("GetItem", "BatchGetItem", "Query")

# Every job reads topics, the log and segments. The stack does not deploy while a script of penstock_spark/scripts/ is
# missing here.
JOB_GRANTS: Mapping[str, JobGrants] = {
    "compact": JobGrants(
        topics=_READ_TOPICS,
        log=(*_READ_LOG, "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        compacts=True,
    ),
    "archive": JobGrants(topics=_READ_TOPICS, log=_READ_LOG, results="lake", catalog="writes", reads_schemas=True),
    "replay": JobGrants(  # appends as the function produce does
        topics=_READ_TOPICS,
        log=(*_READ_LOG, "UpdateItem", "PutItem"),
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
        results="lake",
        catalog="reads",
    ),
    "analyze": JobGrants(
        topics=_READ_TOPICS, log=_READ_LOG, groups=("Query", "GetItem", "BatchGetItem"), results="reports"
    ),
    "sweep": JobGrants(
        topics=_READ_TOPICS,
        log=(*_READ_LOG, "UpdateItem"),
        writes_zones=True,
        sweeps_stores=True,
        sends_repairs=True,
        keeps_cursor=True,
    ),
}


def job_grants_of(name: str, settings: StageSettings) -> JobGrants:
    """Returns the permissions of one job on the stage: with one zone, none for zone states and repairs."""
    grants = JOB_GRANTS[name]
    return grants if settings.repairs_zones else replace(grants, changes_zone_states=False, sends_repairs=False)


_WILDCARDS = {
    "/*": "The job makes up each name as it writes, and a value names its schema.",
    ":*": "Spark names log streams as it logs.",
    "-??????": "AWS ends a secret's ARN with six letters.",
}


class JobRole(Construct):
    """The role of one job. It may also write to `log_groups`, and read exactly the objects of `files`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        grants: JobGrants,
        storage: StageStorage,
        repairs: sqs.Queue | None,
        wake_ups: WakeUps,
        results: Results,
        catalog: Catalog | None,
        log_groups: Sequence[logs.LogGroup],
        files: Sequence[s3_assets.Asset],
    ) -> None:
        super().__init__(scope, construct_id)
        account = Stack.of(self).account
        service = iam.CompositePrincipal(
            *(
                iam.ServicePrincipal(name, conditions={"StringEquals": {"aws:SourceAccount": account}})
                for name in ("emr-serverless.amazonaws.com", "glue.amazonaws.com")
            )
        )
        statements = [
            *_item_statements(grants, storage.tables),
            *_segment_statements(grants, storage),
            *_log_statements(log_groups),
            iam.PolicyStatement(
                actions=["s3:GetObject"], resources=[each.bucket.arn_for_objects(each.s3_object_key) for each in files]
            ),
        ]
        if grants.sends_repairs and repairs is not None:
            statements.append(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[repairs.queue_arn]))
        if grants.wakes_readers:
            statements.append(wake_ups.publish_statement())
        if grants.results is not None:
            statements += results.statements(grants.results)
        if catalog is not None and grants.catalog is not None:
            statements += catalog.statements(writes=grants.catalog == "writes")
        if grants.reads_schemas:
            statements += _schema_statements(self, settings)
        of_key = use_statements(self, settings, statements)
        policy = iam.PolicyDocument(statements=[*statements, *of_key])
        self.role = iam.Role(self, "Role", assumed_by=service, inline_policies={INLINE: policy})
        for resource in (each for statement in statements for each in statement.resources):
            for end, reason in _WILDCARDS.items():
                if resource.endswith(end):
                    acknowledge_wildcard(self.role, resource, reason)
        acknowledge_wildcard(self.role, "*", "DescribeLogGroups has no resources to name.")


def _item_statements(grants: JobGrants, tables: Tables) -> list[iam.PolicyStatement]:
    statements = [*tables.statements(topics=grants.topics, log=grants.log, groups=grants.groups)]
    if grants.sweeps_stores:
        statements.append(tables.inline_sweep_statement())
    if grants.keeps_cursor:
        statements.append(tables.cursors_statement())
    if grants.changes_zone_states:
        statements.append(tables.zone_states_statement())
    return statements


def _segment_statements(grants: JobGrants, storage: StageStorage) -> list[iam.PolicyStatement]:
    archive = storage.archive
    statements = [archive.place.read_statement(), *archive.place.missing_statements()]
    for zone in storage.zones.all:
        statements += [zone.read_statement(), *zone.missing_statements()]
        if grants.writes_zones:
            statements.append(zone.write_statement())
        if grants.sweeps_stores:
            statements += zone.sweep_statements()
    if grants.sweeps_stores:
        statements += archive.place.sweep_statements()
    if grants.compacts:
        statements += archive.compaction_statements()
    return statements


def _schema_statements(scope: Construct, settings: StageSettings) -> list[iam.PolicyStatement]:
    """Allows to read the secret of a schema registry, and the schemas of Glue's, as the settings say."""
    stack, statements = Stack.of(scope), []

    def arn(service: str, name: str) -> str:
        return f"arn:{stack.partition}:{service}:{stack.region}:{stack.account}:{name}"

    if settings.registry_secret is not None:
        secret = arn("secretsmanager", f"secret:{settings.registry_secret}-??????")
        statements.append(iam.PolicyStatement(actions=["secretsmanager:GetSecretValue"], resources=[secret]))
    if settings.reads_glue_schemas:
        schemas = [arn("glue", "registry/*"), arn("glue", "schema/*")]
        statements.append(iam.PolicyStatement(actions=["glue:GetSchemaVersion"], resources=schemas))
    return statements


def _log_statements(log_groups: Sequence[logs.LogGroup]) -> list[iam.PolicyStatement]:
    """Allows to log to CloudWatch, as EMR Serverless asks for ("Storing logs" in its guide).

    It also covers Glue's managed policy, except the creation of log groups: the stack creates them.
    """
    return [
        iam.PolicyStatement(actions=["logs:DescribeLogGroups"], resources=["*"]),
        iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[each.log_group_arn for each in log_groups],
        ),
    ]
