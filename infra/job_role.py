"""What each Spark job may do, and its role, which EMR Serverless and Glue assume in its name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.archive import Archive
from infra.catalog import Catalog
from infra.functions import CURSORS_KEY, ZONE_STATES_KEY
from infra.results import Results
from infra.tables import Tables
from infra.wildcards import acknowledge_wildcard
from infra.zones import Zones


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGrants:
    """DynamoDB actions per table (without their prefix), what the job does with segments and repairs, whether it takes
    zones out that fail its appends, whether it keeps notes among the cursors, the folder of the results' bucket that it
    reads and writes, and what it does with the catalog's tables."""

    topics: tuple[str, ...]
    log: tuple[str, ...]
    groups: tuple[str, ...] = ()
    writes_zones: bool = False
    sweeps_stores: bool = False
    compacts: bool = False
    sends_repairs: bool = False
    changes_zone_states: bool = False
    keeps_cursor: bool = False
    results: str | None = None
    catalog: Literal["reads", "writes"] | None = None


_READ_TOPICS = ("GetItem", "Scan")
_READ_LOG = ("GetItem", "BatchGetItem", "Query")

# Every job reads topics, the log and segments. A script of glue_jobs/ that is not named here does not deploy.
JOB_GRANTS: Mapping[str, JobGrants] = {
    "compact": JobGrants(
        topics=_READ_TOPICS,
        log=(*_READ_LOG, "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        compacts=True,
    ),
    "archive": JobGrants(topics=_READ_TOPICS, log=_READ_LOG, results="lake", catalog="writes"),
    "replay": JobGrants(  # appends as the function produce does
        topics=_READ_TOPICS,
        log=(*_READ_LOG, "UpdateItem", "PutItem"),
        writes_zones=True,
        changes_zone_states=True,
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


class JobRole(Construct):
    """The role of one job. It may also write the jobs' log groups, and read exactly the files that it is sent with."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        grants: JobGrants,
        tables: Tables,
        zones: Zones,
        archive: Archive,
        repairs: sqs.Queue,
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
        self.role = iam.Role(self, "Role", assumed_by=service)
        statements = [
            *_table_statements(grants, tables),
            *_segment_statements(grants, zones, archive),
            *_log_statements(log_groups),
            iam.PolicyStatement(
                actions=["s3:GetObject"], resources=[each.bucket.arn_for_objects(each.s3_object_key) for each in files]
            ),
        ]
        if grants.sends_repairs:
            statements.append(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[repairs.queue_arn]))
        if grants.results is not None:
            statements += results.statements(grants.results)
        if catalog is not None and grants.catalog is not None:
            statements += catalog.statements(writes=grants.catalog == "writes")
        for statement in statements:
            self.role.add_to_policy(statement)
            for resource in statement.resources:
                if resource.endswith("/*"):
                    acknowledge_wildcard(
                        self.role, resource, "Keys and tables below it are made up as they are written."
                    )
                if resource.endswith(":*"):
                    acknowledge_wildcard(self.role, resource, "Streams are named by Spark as it logs.")
        acknowledge_wildcard(self.role, "*", "DescribeLogGroups has no resources to name.")


def _table_statements(grants: JobGrants, tables: Tables) -> list[iam.PolicyStatement]:
    statements = [
        iam.PolicyStatement(actions=[f"dynamodb:{action}" for action in actions], resources=[table.table_arn])
        for table, actions in ((tables.topics, grants.topics), (tables.log, grants.log), (tables.groups, grants.groups))
        if actions
    ]
    keys = {
        CURSORS_KEY: ("PutItem", "DeleteItem") if grants.keeps_cursor else (),
        ZONE_STATES_KEY: ("PutItem",) if grants.changes_zone_states else (),
    }
    for key, actions in keys.items():
        if actions:
            statements.append(
                iam.PolicyStatement(
                    actions=[f"dynamodb:{action}" for action in actions],
                    resources=[tables.topics.table_arn],
                    conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [key]}},
                )
            )
    return statements


def _segment_statements(grants: JobGrants, zones: Zones, archive: Archive) -> list[iam.PolicyStatement]:
    statements = [archive.place.read_statement(), *archive.place.missing_statements()]
    for zone in zones.all:
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


def _log_statements(log_groups: Sequence[logs.LogGroup]) -> list[iam.PolicyStatement]:
    """What EMR Serverless asks of a role that logs to CloudWatch (its guide, "Storing logs"), and of what Glue's own
    managed policy has all but the making of log groups: they are there."""
    return [
        iam.PolicyStatement(actions=["logs:DescribeLogGroups"], resources=["*"]),
        iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[each.log_group_arn for each in log_groups],
        ),
    ]
