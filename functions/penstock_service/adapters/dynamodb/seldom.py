"""The stores of DynamoDB that few functions use. Each loads its module, and the ports with it, when it is first used.

A new instance of produce or fetch would else load them all, for nothing (docs/adr/0067).
"""

from typing import TYPE_CHECKING

from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.on_demand import late

if TYPE_CHECKING:
    from penstock_service.ports.access import AuditStore
    from penstock_service.ports.groups import GroupStore, MembershipStore
    from penstock_service.ports.log import CompactionStore
    from penstock_service.ports.push import PushStore
    from penstock_service.ports.runtime import JobCursors
    from penstock_service.ports.schedules import ScheduleStore
    from penstock_service.ports.share import ShareStore
    from penstock_service.ports.timers import TimerStore
    from penstock_service.ports.transactions import TransactionStore


def memberships(dynamodb: DynamoDbClient, groups_table: str) -> "MembershipStore":
    """MembershipStore: the port documents its methods."""

    def make() -> "MembershipStore":
        from penstock_service.adapters.dynamodb.groups import DynamoDbMembershipStore

        return DynamoDbMembershipStore(dynamodb, groups_table)

    return late(make)


def groups(dynamodb: DynamoDbClient, groups_table: str) -> "GroupStore":
    """GroupStore: the port documents its methods."""

    def make() -> "GroupStore":
        from penstock_service.adapters.dynamodb.groups import DynamoDbGroupStore

        return DynamoDbGroupStore(dynamodb, groups_table)

    return late(make)


def share(dynamodb: DynamoDbClient, groups_table: str) -> "ShareStore":
    """ShareStore: the port documents its methods."""

    def make() -> "ShareStore":
        from penstock_service.adapters.dynamodb.share import DynamoDbShareStore

        return DynamoDbShareStore(dynamodb, groups_table)

    return late(make)


def push(dynamodb: DynamoDbClient, groups_table: str) -> "PushStore":
    """PushStore: the port documents its methods."""

    def make() -> "PushStore":
        from penstock_service.adapters.dynamodb.push import DynamoDbPushStore

        return DynamoDbPushStore(dynamodb, groups_table)

    return late(make)


def schedules(dynamodb: DynamoDbClient, groups_table: str) -> "ScheduleStore":
    """ScheduleStore: the port documents its methods."""

    def make() -> "ScheduleStore":
        from penstock_service.adapters.dynamodb.schedules import DynamoDbScheduleStore

        return DynamoDbScheduleStore(dynamodb, groups_table)

    return late(make)


def transactions(dynamodb: DynamoDbClient, log_table: str, groups_table: str) -> "TransactionStore":
    """TransactionStore: the port documents its methods."""

    def make() -> "TransactionStore":
        from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore

        return DynamoDbTransactionStore(dynamodb, log_table, groups_table)

    return late(make)


def compaction(dynamodb: DynamoDbClient, log_table: str) -> "CompactionStore":
    """CompactionStore: the port documents its methods."""

    def make() -> "CompactionStore":
        from penstock_service.adapters.dynamodb.compaction import DynamoDbCompactionStore

        return DynamoDbCompactionStore(dynamodb, log_table)

    return late(make)


def timers(dynamodb: DynamoDbClient, log_table: str) -> "TimerStore":
    """TimerStore: the port documents its methods."""

    def make() -> "TimerStore":
        from penstock_service.adapters.dynamodb.timers import DynamoDbTimerStore

        return DynamoDbTimerStore(dynamodb, log_table)

    return late(make)


def cursors(dynamodb: DynamoDbClient, topics_table: str) -> "JobCursors":
    """JobCursors: the port documents its methods."""

    def make() -> "JobCursors":
        from penstock_service.adapters.dynamodb.compaction import DynamoDbJobCursors

        return DynamoDbJobCursors(dynamodb, topics_table)

    return late(make)


def audit(dynamodb: DynamoDbClient, topics_table: str) -> "AuditStore":
    """AuditStore: the port documents its methods."""

    def make() -> "AuditStore":
        from penstock_service.adapters.dynamodb.compaction import DynamoDbAuditStore

        return DynamoDbAuditStore(dynamodb, topics_table)

    return late(make)
