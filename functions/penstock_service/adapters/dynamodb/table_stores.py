"""All stores of a stage that lie in its three tables, on one client: of AWS, or of tables in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from penstock_service.adapters.dynamodb import seldom
from penstock_service.adapters.dynamodb.inline import DynamoDbInlineStore
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_service.adapters.dynamodb.quotas import DynamoDbQuotaStore
from penstock_service.adapters.dynamodb.topics import DynamoDbAclStore, DynamoDbTopicStore, DynamoDbZoneStateStore

if TYPE_CHECKING:
    from penstock_service.adapters.dynamodb.client import DynamoDbClient
    from penstock_service.ports.access import AclStore, AuditStore, QuotaStore
    from penstock_service.ports.groups import GroupStore, MembershipStore
    from penstock_service.ports.log import CompactionStore, LogIndex
    from penstock_service.ports.push import PushStore
    from penstock_service.ports.runtime import JobCursors
    from penstock_service.ports.schedules import ScheduleStore
    from penstock_service.ports.segments import InlineStore
    from penstock_service.ports.share import ShareStore
    from penstock_service.ports.timers import TimerStore
    from penstock_service.ports.topics import TopicStore, ZoneStateStore
    from penstock_service.ports.transactions import TransactionStore


class TableStores(TypedDict):
    """The stores in tables, by their names in `Stores`."""

    topics: TopicStore
    log: LogIndex
    groups: GroupStore
    memberships: MembershipStore
    share: ShareStore
    push: PushStore
    schedules: ScheduleStore
    transactions: TransactionStore
    compaction: CompactionStore
    timers: TimerStore
    zone_states: ZoneStateStore
    acls: AclStore
    cursors: JobCursors
    audit: AuditStore
    quotas: QuotaStore
    inline: InlineStore


def table_stores(
    dynamodb: DynamoDbClient, topics: str = "topics", log: str = "log", groups: str = "groups"
) -> TableStores:
    """The stores on tables of these names. Those that few functions use are loaded when they are first used."""
    return TableStores(
        topics=DynamoDbTopicStore(dynamodb, topics),
        log=DynamoDbLogIndex(dynamodb, log),
        groups=seldom.groups(dynamodb, groups),
        memberships=seldom.memberships(dynamodb, groups),
        share=seldom.share(dynamodb, groups),
        push=seldom.push(dynamodb, groups),
        schedules=seldom.schedules(dynamodb, groups),
        transactions=seldom.transactions(dynamodb, log, groups),
        compaction=seldom.compaction(dynamodb, log),
        timers=seldom.timers(dynamodb, log),
        zone_states=DynamoDbZoneStateStore(dynamodb, topics),
        acls=DynamoDbAclStore(dynamodb, topics),
        cursors=seldom.cursors(dynamodb, topics),
        audit=seldom.audit(dynamodb, topics),
        quotas=DynamoDbQuotaStore(dynamodb, groups),
        inline=DynamoDbInlineStore(dynamodb, log),
    )
