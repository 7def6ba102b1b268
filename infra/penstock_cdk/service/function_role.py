"""The permissions of each Lambda function, and the role that holds them.

A function may do exactly the actions that `GRANTS` names, on resources named one by one. TransactWriteItems and
TransactGetItems need no permission of their own, only those of the writes and reads in them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.service.measuring import MEASURE
from penstock_cdk.service.push import DELIVER, DISPATCH, LOOK, PushQueues
from penstock_cdk.service.repair import RepairQueues
from penstock_cdk.service.timers import PROMOTE, TimerQueues
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import AUDIT, StageSettings
from penstock_cdk.storage.stage_storage import StageStorage
from penstock_cdk.storage.tables import Tables
from penstock_cdk.wildcards import acknowledge_wildcard


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The permissions of one function.

    `topics`, `log` and `groups` are DynamoDB actions on those tables, without the prefix `dynamodb:`.
    `shares` are actions on the items of share groups, which the groups table has, too.
    `reads_zones` and `writes_zones` cover the segments in the zones, `reads_archive` those in the archive.
    `sweeps_zones` allows to list and delete segments in zones and archive. With `tells_missing_objects`, S3 answers
    that an object is missing; without it, S3 answers that access is denied. `changes_zone_states`, `keeps_cursor`,
    `changes_acls` and `settles_deletions` allow writes of those items of the topics table. `takes_repairs` covers the
    repair queue and the log table's stream. `writes_archive` allows to upload segments to the archive. `arms_waiters`
    allows to set the
    waiter of a head, and `wakes_readers` to publish wake-ups. `schedules_records` allows to put delayed records into
    the archive, and to start their deliveries, `switches_timers` to enable the rule for them, and `promotes` to take
    their messages. `dispatches` covers the log table's stream, the notes of subscriptions, and messages that start
    deliveries. `starts_deliveries` allows to send such messages, and all that `switches_deliveries` does: to switch on
    what takes them and what looks after them. `delivers` allows to take them. `pushes` are actions on the items of
    subscriptions, which the groups table has, too. `reaches_targets` allows to assume the role that calls the targets
    of subscriptions. `notes_changes` allows to note what a request changes, and `settles_audit` to read these notes.
    `spends_quotas` allows to read the quotas and to charge their buckets, `sets_quotas` to list, put and delete quotas.
    """

    topics: tuple[str, ...]
    log: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    reads_zones: bool = False
    reads_archive: bool = False
    writes_zones: bool = False
    tells_missing_objects: bool = False
    changes_zone_states: bool = False
    changes_acls: bool = False
    sends_repairs: bool = False
    takes_repairs: bool = False
    keeps_cursor: bool = False
    settles_deletions: bool = False
    sweeps_zones: bool = False
    writes_archive: bool = False
    arms_waiters: bool = False
    wakes_readers: bool = False
    schedules_records: bool = False
    switches_timers: bool = False
    promotes: bool = False
    dispatches: bool = False
    starts_deliveries: bool = False
    switches_deliveries: bool = False
    delivers: bool = False
    pushes: tuple[str, ...] = ()
    reaches_targets: bool = False
    notes_changes: bool = False
    settles_audit: bool = False
    spends_quotas: bool = False
    sets_quotas: bool = False


# Delayed segments go into the archive. Their timers are put, and read if their due time is past.
# An append is an UpdateItem of the head. A roll puts a page. A producer that leaves the head gets an item of its own
# by PutItem, and an UpdateItem of the head removes its entry.
_RECORDS_PRODUCE = Grants(
    topics=("GetItem",),
    log=("GetItem", "UpdateItem", "PutItem"),
    writes_zones=True,
    changes_zone_states=True,
    wakes_readers=True,
    schedules_records=True,
    spends_quotas=True,
)
# A repeated append reads the page that holds the first one, and the item of a producer that has left the head.
_PRODUCE = replace(_RECORDS_PRODUCE, log=("Query", *_RECORDS_PRODUCE.log))
_FETCH = Grants(
    topics=("GetItem",),
    log=("GetItem", "BatchGetItem", "Query"),
    reads_zones=True,
    reads_archive=True,
    tells_missing_objects=True,
    sends_repairs=True,
    spends_quotas=True,
)

GRANTS: Mapping[str, Grants] = {
    # A batch is a repeat only if its bytes are those of the first: the function may have to read them (docs/adr/0020).
    # `tier` may have moved them to the archive, without a change of their ref's sequence (docs/adr/0030).
    "produce": replace(_PRODUCE, reads_zones=True, reads_archive=True, tells_missing_objects=True, sends_repairs=True),
    # A commit updates heads and leases in one transaction. After a refusal, the function reads them to name the cause.
    # It takes a lease from a member that is gone, and ends that member's session.
    "transactions": replace(
        _PRODUCE,
        log=("BatchGetItem", *_PRODUCE.log),
        groups=("GetItem", "BatchGetItem", "Query", "UpdateItem", "DeleteItem"),
        notes_changes=True,
    ),
    "records_produce": _RECORDS_PRODUCE,
    "fetch": replace(_FETCH, arms_waiters=True),
    "records_fetch": _FETCH,
    "topics": Grants(
        topics=("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        notes_changes=True,
        reads_zones=True,
        reads_archive=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    # Any heartbeat may end sessions and make a new target. It matches patterns with all topics, so it scans them. A
    # commit without a lease reads heads, because no offset beyond the log may be committed. So does a heartbeat that
    # looks at partitions for a member that sleeps: it arms nothing (docs/adr/0026).
    "groups": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem"),
        groups=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
    ),
    # A change of assignor makes a new target. A reset to a time reads segments, as listing offsets does.
    "group_admin": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        groups=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        notes_changes=True,
        reads_zones=True,
        reads_archive=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    # An acquire makes the state of a partition on condition that the group is there. A transaction moves dead letters
    # to their topic: it is an append there.
    "share": replace(
        _FETCH,
        log=(*_FETCH.log, "UpdateItem", "PutItem"),
        notes_changes=True,
        shares=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "ConditionCheckItem"),
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
    ),
    # "latest" is a place in the log when the group is made. A reset to a time reads segments, as listing offsets does.
    "share_admin": replace(
        _FETCH,
        notes_changes=True,
        spends_quotas=False,
        shares=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        wakes_readers=True,
    ),
    # "latest" is a place in the log when the subscription is made. The age of records follows from their refs.
    "subscriptions": Grants(
        topics=("GetItem",),
        log=("GetItem", "BatchGetItem", "Query"),
        notes_changes=True,
        shares=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        pushes=("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"),
        starts_deliveries=True,
        reaches_targets=True,
    ),
    "quotas": Grants(topics=(), sets_quotas=True, notes_changes=True),
    "zones": Grants(topics=("GetItem",), changes_zone_states=True, notes_changes=True),
    "acls": Grants(topics=("GetItem",), changes_acls=True, notes_changes=True),
    "recover_zones": Grants(
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
        topics=("GetItem", "Query", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "UpdateItem", "DeleteItem"),
        groups=("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        pushes=("Query",),
        keeps_cursor=True,
        settles_deletions=True,
        switches_timers=True,
        switches_deliveries=True,
    ),
    # A promotion updates a head and timers in one transaction, and rolls the head.
    PROMOTE: Grants(
        topics=(),
        log=("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        wakes_readers=True,
        promotes=True,
    ),
    DISPATCH: Grants(topics=(), dispatches=True),
    # A move of dead letters or of copies is an append to their topic, in one transaction with a subscription's state.
    # No grant names a target: each lets in the role that `deliver` assumes.
    DELIVER: replace(
        _FETCH,
        spends_quotas=False,
        log=(*_FETCH.log, "UpdateItem", "PutItem"),
        shares=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "ConditionCheckItem"),  # those of parallel mode
        pushes=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem"),
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
        delivers=True,
        reaches_targets=True,
    ),
    # It also reads the places of share groups, and removes what gone subscriptions have left.
    LOOK: Grants(
        topics=("GetItem",),
        log=("GetItem", "BatchGetItem"),
        shares=("GetItem", "BatchGetItem", "PutItem", "DeleteItem"),
        pushes=("GetItem", "Query", "DeleteItem", "BatchWriteItem"),
        keeps_cursor=True,
        starts_deliveries=True,
    ),
    "tier": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        reads_zones=True,
        tells_missing_objects=True,
        writes_archive=True,
        sends_repairs=True,
        keeps_cursor=True,
    ),
    # It reads the places of all kinds of consumers, and writes nothing but what it must remember.
    MEASURE: Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        groups=("GetItem", "BatchGetItem", "Query"),
        keeps_cursor=True,
    ),
    # It makes the topic `_audit` and appends to it: no function that notes changes could write there.
    AUDIT: replace(
        _RECORDS_PRODUCE,
        spends_quotas=False,
        topics=("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"),
        schedules_records=False,
        settles_audit=True,
    ),
    "sweep": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        keeps_cursor=True,
        sweeps_zones=True,
        writes_archive=True,  # the marks of a sweep that takes several runs
    ),
}

# `provision` makes, alters and deletes topics, share groups and subscriptions. It closes and opens heads, and lists no
# deleted topics. "latest" reads heads.
PROVISION_GRANTS = replace(
    GRANTS["subscriptions"],
    topics=("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"),
    log=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem"),
    notes_changes=True,
)

ZONE_REPAIRERS = ("recover_zones", "replicate", "scrub")  # without work where there is one zone
TIER = "tier"  # without work where the zones are no directory buckets


def grants_of(settings: StageSettings) -> Mapping[str, Grants]:
    """Returns the entries of `GRANTS` that the stage deploys, by function.

    With one zone there is no zone state to change, no copy to repair, and no function that would do either.
    """
    without = {*(() if settings.tiers_zones else (TIER,)), *(() if settings.metrics.is_on else (MEASURE,))}
    deployed = {name: grants for name, grants in GRANTS.items() if name not in without}
    if settings.repairs_zones:
        return deployed
    return {
        name: replace(grants, changes_zone_states=False, sends_repairs=False)
        for name, grants in deployed.items()
        if name not in ZONE_REPAIRERS
    }


def function_role(
    scope: Construct,
    *,
    grants: Grants,
    storage: StageStorage,
    queues: RepairQueues | None,
    timers: TimerQueues,
    push: PushQueues,
    wake_ups: WakeUps,
    log_group: logs.LogGroup,
    function_name: str,
    traces: bool,
) -> iam.Role:
    """Makes the role of one function. With `traces`, the CDK adds X-Ray's permissions to it."""
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    statements = (
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]),
        *_item_statements(grants, storage.tables),
        *_quota_statements(grants, storage.tables),
        *_segment_statements(grants, storage),
        *_repair_statements(grants, queues),
        *([wake_ups.publish_statement()] if grants.wakes_readers else []),
        *(timers.announce_statements() if grants.schedules_records else []),
        *([timers.enable_statement()] if grants.switches_timers else []),
        *(timers.promote_statements(function_name) if grants.promotes else []),
        *(_stream_statements(storage.tables) if grants.takes_repairs or grants.dispatches else []),
        *(push.dispatch_statements() if grants.dispatches else []),
        *(push.start_statements() if grants.starts_deliveries else []),
        *(push.switch_statements() if grants.switches_deliveries else []),
        *(push.deliver_statements() if grants.delivers else []),
    )
    for statement in statements:
        role.add_to_policy(statement)
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
    if grants.arms_waiters:
        yield tables.waiters_statement()
    yield from _topics_item_statements(grants, tables)


def _topics_item_statements(grants: Grants, tables: Tables) -> Iterator[iam.PolicyStatement]:
    """Writes of single items of the topics table."""
    if grants.changes_zone_states:
        yield tables.zone_states_statement()
    if grants.changes_acls:
        yield tables.acls_statement()
    if grants.keeps_cursor:
        yield tables.cursors_statement()
    if grants.notes_changes:
        yield tables.audit_statement("PutItem", "DeleteItem")
    if grants.settles_audit:
        yield tables.audit_statement("Query", "DeleteItem")
    if grants.settles_deletions:
        yield tables.deletions_statement()
        yield tables.retirements_statement()


def _quota_statements(grants: Grants, tables: Tables) -> Iterator[iam.PolicyStatement]:
    if grants.spends_quotas:
        yield from tables.spending_statements()
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
                is_channel = "appsync:EventPublish" in statement.actions
                reason = "A channel is named by a topic." if is_channel else "A segment is named as it is written."
                acknowledge_wildcard(role, resource, reason)
            if resource.endswith("event-source-mapping:*"):
                acknowledge_wildcard(role, resource, "The id of a mapping is drawn; a condition names its function.")
    if any("lambda:ListEventSourceMappings" in statement.actions for statement in statements):
        acknowledge_wildcard(role, "*", "ListEventSourceMappings has no resources to name.")
    if any("dynamodb:ListStreams" in statement.actions for statement in statements):
        acknowledge_wildcard(role, "*", "ListStreams has no resources to name.")
    if traces:
        acknowledge_wildcard(role, "*", "X-Ray has no resources to name.")
