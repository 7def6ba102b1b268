"""Each port from both adapters: in memory, and boto3 against moto."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_broker.adapters.dynamodb.compaction import DynamoDbCompactionStore
from penstock_broker.adapters.dynamodb.cursors import DynamoDbJobCursors
from penstock_broker.adapters.dynamodb.groups import DynamoDbGroupStore
from penstock_broker.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_broker.adapters.dynamodb.memberships import DynamoDbMembershipStore
from penstock_broker.adapters.dynamodb.topics import DynamoDbTopicStore
from penstock_broker.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_broker.adapters.dynamodb.zones import DynamoDbZoneStateStore
from penstock_broker.adapters.memory import (
    MemoryArchiveStore,
    MemoryJobCursors,
    MemoryLogIndex,
    MemorySegmentStore,
    MemoryTopicStore,
    MemoryZoneStateStore,
)
from penstock_broker.adapters.memory_compaction import MemoryCompactionStore
from penstock_broker.adapters.memory_groups import MemoryGroupStore, MemoryMembershipStore
from penstock_broker.adapters.memory_transactions import MemoryTransactionStore
from penstock_broker.adapters.s3 import S3SegmentStore
from penstock_broker.adapters.s3_archive import S3ArchiveStore
from penstock_broker.adapters.system import SystemChance, SystemClock
from penstock_broker.ports import (
    ArchiveStore,
    CompactionStore,
    GroupStore,
    JobCursors,
    LogIndex,
    MembershipStore,
    SegmentStore,
    TopicStore,
    TransactionStore,
    ZoneStateStore,
)

REGION = "us-east-1"


@dataclass(frozen=True)
class Ports:
    topics: TopicStore
    log: LogIndex
    groups: GroupStore
    memberships: MembershipStore
    transactions: TransactionStore
    compaction: CompactionStore
    segments: SegmentStore
    archive: ArchiveStore
    zone_states: ZoneStateStore
    cursors: JobCursors


def _memory() -> Iterator[Ports]:
    log, groups = MemoryLogIndex(), MemoryGroupStore()
    yield Ports(
        MemoryTopicStore(),
        log,
        groups,
        MemoryMembershipStore(),
        MemoryTransactionStore(log, groups),
        MemoryCompactionStore(log),
        MemorySegmentStore("a"),
        MemoryArchiveStore("archive"),
        MemoryZoneStateStore(),
        MemoryJobCursors(),
    )


def _aws() -> Iterator[Ports]:
    with mock_aws():
        dynamodb = boto3.client("dynamodb", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))
        for table in ("topics", "log", "groups"):
            create_table(dynamodb, table)
        s3 = boto3.client("s3", region_name=REGION)
        for bucket in ("zone-a", "archive"):
            s3.create_bucket(Bucket=bucket)
        client = DynamoDbClient(dynamodb, SystemClock(), SystemChance())
        yield Ports(
            DynamoDbTopicStore(client, "topics"),
            DynamoDbLogIndex(client, "log"),
            DynamoDbGroupStore(client, "groups"),
            DynamoDbMembershipStore(client, "groups"),
            DynamoDbTransactionStore(client, "log", "groups"),
            DynamoDbCompactionStore(client, "log"),
            S3SegmentStore(s3, "zone-a", "a"),
            S3ArchiveStore(s3, "archive"),
            DynamoDbZoneStateStore(client, "topics"),
            DynamoDbJobCursors(client, "topics"),
        )


_ADAPTERS: dict[str, Callable[[], Iterator[Ports]]] = {"memory": _memory, "aws": _aws}


@pytest.fixture(params=_ADAPTERS)
def ports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ports]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    yield from _ADAPTERS[request.param]()


def create_table(dynamodb: Any, name: str) -> None:
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
    )
