"""The role of a Lambda function: the statements that its grants come to."""

from collections.abc import Iterator, Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.customer_key import use_statements
from penstock_cdk.service.grants import Grants
from penstock_cdk.service.push import PushQueues
from penstock_cdk.service.repair import RepairQueues
from penstock_cdk.service.targets import TargetsRole
from penstock_cdk.service.timers import TimerQueues
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.stage_storage import StageStorage
from penstock_cdk.storage.tables import Tables
from penstock_cdk.wildcards import acknowledge_wildcard

INLINE = "Penstock"  # the name of the policy in each role
_TRACE_ACTIONS = ("xray:PutTraceSegments", "xray:PutTelemetryRecords")


def function_role(
    scope: Construct,
    *,
    settings: StageSettings,
    grants: Grants,
    storage: StageStorage,
    queues: RepairQueues | None,
    timers: TimerQueues,
    push: PushQueues,
    wake_ups: WakeUps,
    targets: TargetsRole,
    log_group: logs.LogGroup,
    function_name: str,
    traces: bool,
) -> iam.Role:
    """Makes the role of one function, with its policy inside: CloudFormation takes 500 resources of a stack."""
    statements = (
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]),
        *_item_statements(grants, storage.tables),
        *_quota_statements(grants, storage.tables),
        *_segment_statements(grants, storage),
        *_repair_statements(grants, queues),
        *([wake_ups.publish_statement()] if grants.wakes_readers else []),
        *(timers.announce_statements() if grants.schedules_records or grants.starts_schedules else []),
        *([timers.enable_statement()] if grants.switches_timers else []),
        *(timers.promote_statements(function_name) if grants.promotes else []),
        *(_stream_statements(storage.tables) if grants.takes_repairs or grants.dispatches else []),
        *(push.dispatch_statements() if grants.dispatches else []),
        *(push.start_statements() if grants.starts_deliveries else []),
        *(push.switch_statements() if grants.switches_deliveries else []),
        *(push.deliver_statements() if grants.delivers else []),
        *([targets.assume_statement()] if grants.reaches_targets else []),
        *([iam.PolicyStatement(actions=[*_TRACE_ACTIONS], resources=["*"])] if traces else []),
    )
    of_key = use_statements(scope, settings, statements)
    role = iam.Role(
        scope,
        "Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        inline_policies={INLINE: iam.PolicyDocument(statements=[*statements, *of_key])},
    )
    _acknowledge_wildcards(role, statements, traces=traces)
    return role


def _item_statements(grants: Grants, tables: Tables) -> Iterator[iam.PolicyStatement]:
    yield from tables.statements(topics=grants.topics, log=grants.log, groups=grants.groups)
    if grants.shares:
        yield tables.shares_statement(*grants.shares)
    if grants.dispatches:
        yield tables.subscription_notes_statement()
    if grants.pushes:
        yield tables.subscriptions_statement(*grants.pushes)
    if grants.counts_subscriptions:
        yield tables.subscriptions_count_statement()
    if grants.schedules:
        yield tables.schedules_statement(*grants.schedules)
    if grants.sweeps_zones:
        yield tables.inline_sweep_statement()
    if grants.arms_waiters:
        yield tables.waiters_statement()
    if grants.announces_readers:
        yield tables.readers_statement()
    yield from _topics_item_statements(grants, tables)


def _topics_item_statements(grants: Grants, tables: Tables) -> Iterator[iam.PolicyStatement]:
    """Writes of single items of the topics table."""
    if grants.changes_zone_states:
        yield tables.zone_states_statement()
    if grants.changes_acls:
        yield tables.acls_statement()
    if grants.keeps_cursor:
        yield tables.cursors_statement()
    if grants.dates_index:
        yield tables.index_age_statement()
    if grants.notes_changes:
        yield tables.audit_statement("PutItem", "DeleteItem")
    if grants.settles_audit:
        yield tables.audit_statement("Query", "DeleteItem")
    if grants.settles_deletions:
        yield tables.deletions_statement()
    if grants.ends_changes:
        yield tables.layouts_statement()
    if grants.keeps_items:
        yield tables.raises_statement()


def _quota_statements(grants: Grants, tables: Tables) -> Iterator[iam.PolicyStatement]:
    if grants.spends_quotas:
        yield from tables.spending_statements()
    if grants.claims_resources:
        yield tables.claims_statement("Query", "PutItem", "DeleteItem")
        if not grants.sets_quotas:
            yield tables.quotas_statement("Query")
    if grants.keeps_claims:
        yield tables.claims_statement("PutItem", "DeleteItem")
    if grants.sets_quotas:
        yield tables.quotas_statement("Query", "PutItem", "DeleteItem")


def _segment_statements(grants: Grants, storage: StageStorage) -> Iterator[iam.PolicyStatement]:
    for zone in storage.zones.all:
        if grants.reads_zones:
            yield zone.read_statement()
        if grants.writes_zones:
            yield zone.write_statement()
        if grants.tells_missing_objects:
            yield from zone.missing_statements()
        if grants.sweeps_zones:
            yield from zone.sweep_statements()
    archive = storage.archive.place
    if grants.reads_archive:
        yield archive.read_statement()
        yield from archive.missing_statements()
    if grants.sweeps_zones:
        yield from archive.sweep_statements()
    if grants.schedules_records:
        yield archive.write_statement()
    if grants.writes_archive:
        yield from storage.archive.compaction_statements()


def _stream_statements(tables: Tables) -> Iterator[iam.PolicyStatement]:
    """Lambda's pollers read the stream in the function's name (Lambda guide on DynamoDB)."""
    yield iam.PolicyStatement(
        actions=["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"],
        resources=[str(tables.log.table_stream_arn)],
    )
    yield iam.PolicyStatement(actions=["dynamodb:ListStreams"], resources=["*"])


def _repair_statements(grants: Grants, queues: RepairQueues | None) -> Iterator[iam.PolicyStatement]:
    """Lambda's pollers read the queue in the function's name (Lambda guide on SQS)."""
    if queues is None:
        return
    if grants.sends_repairs:
        yield _sqs_statement(queues.repairs, "SendMessage")
    if grants.takes_repairs:
        yield _sqs_statement(queues.repairs, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
        yield _sqs_statement(queues.dead_stream, "SendMessage")


def _sqs_statement(queue: sqs.Queue, *actions: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=[f"sqs:{action}" for action in actions], resources=[queue.queue_arn])


def _acknowledge_wildcards(role: iam.Role, statements: Sequence[iam.PolicyStatement], *, traces: bool) -> None:
    for statement in statements:
        for resource in statement.resources:
            if resource.endswith("/*"):
                acknowledge_wildcard(role, resource, "A segment is named as it is written.")
            if resource.endswith("event-source-mapping:*"):
                acknowledge_wildcard(role, resource, "The id of a mapping is drawn; a condition names its function.")
    if any("lambda:ListEventSourceMappings" in statement.actions for statement in statements):
        acknowledge_wildcard(role, "*", "ListEventSourceMappings has no resources to name.")
    if any("dynamodb:ListStreams" in statement.actions for statement in statements):
        acknowledge_wildcard(role, "*", "ListStreams has no resources to name.")
    if traces:
        acknowledge_wildcard(role, "*", "X-Ray has no resources to name.")
