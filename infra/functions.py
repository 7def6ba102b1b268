"""The Lambda functions: what each may do, and its role, log group and environment.

A function is allowed exactly what `GRANTS` says, on resources named one by one. TransactWriteItems and
TransactGetItems need no permission of their own, only those of the writes and reads in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.archive import Archive
from infra.repair import RepairQueues
from infra.settings import METRICS_NAMESPACE, StageSettings, service_name
from infra.tables import Tables
from infra.wildcards import acknowledge_wildcard
from infra.zones import Zones

# pk of items in the topics table, as docs/data-model.md has them
ZONE_STATES_KEY = "#zones"
CURSORS_KEY = "#cursors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """DynamoDB actions per table (without their prefix), whether the function reads, writes or removes segments of the
    zones, whether it reads the archive (who sweeps zones sweeps it too), whether it is told which are missing (by S3,
    of those only that may list a bucket), whether it may change zones' states, and whether it sends repairs to their
    queue, takes them from there and from the log table's stream, or keeps a cursor in the topics table."""

    topics: tuple[str, ...]
    log: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    reads_zones: bool = False
    reads_archive: bool = False
    writes_zones: bool = False
    tells_missing_objects: bool = False
    changes_zone_states: bool = False
    sends_repairs: bool = False
    takes_repairs: bool = False
    keeps_cursor: bool = False
    sweeps_zones: bool = False


# On the log, an append is an UpdateItem of the head; the roll of a tail is a PutItem of a page, and of producers that
# leave the head, with an UpdateItem.
_RECORDS_PRODUCE = Grants(
    topics=("GetItem",), log=("UpdateItem", "PutItem"), writes_zones=True, changes_zone_states=True
)
# Where the first of a repeated append is, and what is known of a producer that has left the head, must be read.
_PRODUCE = replace(_RECORDS_PRODUCE, log=("GetItem", "Query", *_RECORDS_PRODUCE.log))
_FETCH = Grants(
    topics=("GetItem",),
    log=("GetItem", "BatchGetItem", "Query"),
    reads_zones=True,
    reads_archive=True,
    tells_missing_objects=True,
    sends_repairs=True,
)

GRANTS: Mapping[str, Grants] = {
    "produce": _PRODUCE,
    # A commit is an UpdateItem of heads and leases in one transaction; why it was refused is read.
    "transactions": replace(_PRODUCE, log=("BatchGetItem", *_PRODUCE.log), groups=("GetItem", "UpdateItem")),
    "records_produce": _RECORDS_PRODUCE,
    "fetch": _FETCH,
    "records_fetch": _FETCH,
    "topics": Grants(
        topics=("GetItem", "PutItem", "DeleteItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        reads_zones=True,
        reads_archive=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    # A heartbeat may be the one that ends sessions and makes a new target; patterns are held against all topics.
    "groups": Grants(
        topics=("GetItem", "Scan"),
        groups=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
    ),
    # Another assignor makes a new target; a reset to a time reads segments, as listing offsets does.
    "group_admin": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        groups=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        reads_zones=True,
        reads_archive=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    "zones": Grants(topics=("GetItem",), changes_zone_states=True),
    "keeper": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "Query", "UpdateItem"),
        reads_zones=True,
        writes_zones=True,
        tells_missing_objects=True,
        changes_zone_states=True,
    ),
    "scrub": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "Query", "UpdateItem"),
        keeps_cursor=True,
        reads_zones=True,
        reads_archive=True,
        writes_zones=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    "replicate": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "Query", "UpdateItem"),
        reads_zones=True,
        writes_zones=True,
        tells_missing_objects=True,
        sends_repairs=True,
        takes_repairs=True,
    ),
    "retention": Grants(
        topics=("GetItem", "PutItem", "DeleteItem", "Query", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "UpdateItem", "DeleteItem"),
        groups=("GetItem", "Query", "PutItem", "DeleteItem"),
    ),
    "sweep": Grants(
        topics=("GetItem", "PutItem", "DeleteItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        sweeps_zones=True,
    ),
}


class Functions(Construct):
    """One Lambda function per entry of `GRANTS`: module `handlers.<name>`, entry `handler`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        tables: Tables,
        zones: Zones,
        archive: Archive,
        queues: RepairQueues,
        code: lambda_.Code,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self._queues = queues
        self._tables = tables
        self._zones = zones
        self._archive = archive
        self._code = code
        self.by_name: dict[str, lambda_.Function] = {name: self._function(name) for name in GRANTS}

    def _function(self, name: str) -> lambda_.Function:
        settings = self._settings
        scope = Construct(self, name.title().replace("_", ""))
        function_name = f"{settings.name}-{name.replace('_', '-')}"
        log_group = logs.LogGroup(
            scope,
            "Logs",
            log_group_name=f"/aws/lambda/{function_name}",
            retention=logs.RetentionDays[settings.log_retention],
            removal_policy=RemovalPolicy.DESTROY,
        )
        size = settings.function_sizes[name]
        return lambda_.Function(
            scope,
            "Function",
            function_name=function_name,
            description=f"Penstock {name.replace('_', ' ')}",
            runtime=lambda_.Runtime(f"python{settings.python_version}", lambda_.RuntimeFamily.PYTHON),
            architecture=(
                lambda_.Architecture.ARM_64 if settings.architecture == "arm64" else lambda_.Architecture.X86_64
            ),
            code=self._code,
            handler=f"handlers.{name}.handler",
            memory_size=size.memory_mb,
            timeout=Duration.seconds(size.timeout_s),
            role=self._role(scope, name, log_group),
            log_group=log_group,
            tracing=lambda_.Tracing.ACTIVE if settings.traces else lambda_.Tracing.DISABLED,
            environment=self._environment(name),
        )

    def _role(self, scope: Construct, name: str, log_group: logs.LogGroup) -> iam.Role:
        role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        grants = GRANTS[name]
        statements = [
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]
            )
        ]
        for table, actions in (
            (self._tables.topics, grants.topics),
            (self._tables.log, grants.log),
            (self._tables.groups, grants.groups),
        ):
            if actions:
                statements.append(
                    iam.PolicyStatement(
                        actions=[f"dynamodb:{action}" for action in actions], resources=[table.table_arn]
                    )
                )
        if grants.changes_zone_states:
            statements.append(_items_statement(self._tables.topics.table_arn, ZONE_STATES_KEY, "PutItem"))
        if grants.keeps_cursor:
            statements.append(_items_statement(self._tables.topics.table_arn, CURSORS_KEY, "PutItem", "DeleteItem"))
        for zone in self._zones.all:
            if grants.reads_zones:
                statements.append(zone.read_statement())
            if grants.writes_zones:
                statements.append(zone.write_statement())
            if grants.tells_missing_objects:
                statements += zone.missing_statements()
            if grants.sweeps_zones:
                statements.extend(zone.sweep_statements())
        if grants.reads_archive:
            statements += [self._archive.place.read_statement(), *self._archive.place.missing_statements()]
        if grants.sweeps_zones:
            statements.extend(self._archive.place.sweep_statements())
        if grants.sends_repairs:
            statements.append(_sqs_statement(self._queues.repairs, "SendMessage"))
        if grants.takes_repairs:
            statements += self._take_statements()
            acknowledge_wildcard(role, "*", "ListStreams has no resources to name.")
        for statement in statements:
            role.add_to_policy(statement)
            for resource in statement.resources:
                if resource.endswith("/*"):
                    acknowledge_wildcard(role, resource, "The keys of segments are made up as they are written.")
        if self._settings.traces:
            acknowledge_wildcard(role, "*", "X-Ray has no resources to name.")
        return role

    def _take_statements(self) -> tuple[iam.PolicyStatement, ...]:
        """What Lambda's pollers do in the function's name (Lambda guide on DynamoDB and on SQS)."""
        return (
            iam.PolicyStatement(
                actions=["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"],
                resources=[str(self._tables.log.table_stream_arn)],
            ),
            iam.PolicyStatement(actions=["dynamodb:ListStreams"], resources=["*"]),
            _sqs_statement(self._queues.repairs, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes"),
            _sqs_statement(self._queues.dead_stream, "SendMessage"),
        )

    def _environment(self, name: str) -> dict[str, str]:
        return {
            "PENSTOCK_TOPICS_TABLE": self._tables.topics.table_name,
            "PENSTOCK_LOG_TABLE": self._tables.log.table_name,
            "PENSTOCK_GROUPS_TABLE": self._tables.groups.table_name,
            "PENSTOCK_ZONES": self._zones.environment,
            "PENSTOCK_ARCHIVE": self._archive.bucket_name,
            "PENSTOCK_REPAIR_QUEUE_URL": self._queues.repairs.queue_url,
            "POWERTOOLS_SERVICE_NAME": service_name(self._settings, name),
            "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
            "POWERTOOLS_LOG_LEVEL": self._settings.log_level,
            "POWERTOOLS_TRACE_DISABLED": "false" if self._settings.traces else "true",
            **self._settings.job_environments.get(name, {}),
        }


def _sqs_statement(queue: sqs.Queue, *actions: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=[f"sqs:{action}" for action in actions], resources=[queue.queue_arn])


def _items_statement(table_arn: str, key: str, *actions: str) -> iam.PolicyStatement:
    """The actions on the items with that pk only (DynamoDB guide, "Using IAM policy conditions")."""
    return iam.PolicyStatement(
        actions=[f"dynamodb:{action}" for action in actions],
        resources=[table_arn],
        conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [key]}},
    )
