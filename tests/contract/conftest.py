"""Each port from all adapters: tables in memory, the same in a data folder, and both kinds of clients against moto."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends
from moto.s3.models import s3_backends

from penstock_core.ids import TransactionalId
from penstock_core.log.wake_up import PushEvent
from penstock_core.storage.head_item import parse_push_event
from penstock_core.storage.keys import KeyLayout
from penstock_core.storage.transaction_items import state_key
from penstock_service.adapters.botocore_drivers import BotocoreDriver
from penstock_service.adapters.direct.drivers import DirectDynamoDb
from penstock_service.adapters.direct.places import Keys, Places
from penstock_service.adapters.direct.s3 import DirectS3
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import TableStores, table_stores
from penstock_service.adapters.memory.service import MemoryArchiveStore, MemorySegmentStore
from penstock_service.adapters.s3.archive import S3ArchiveStore
from penstock_service.adapters.s3.segments import S3SegmentStore
from penstock_service.adapters.sqlite.database import Items
from penstock_service.adapters.sqlite.service import open_service
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import SequentialExecutor, SystemClock, SystemEntropy
from penstock_service.adapters.tables.tables import Change, Tables
from penstock_service.adapters.timer_triggers import ByHourSegmentStore
from penstock_service.ports.access import AclStore, AuditStore, QuotaStore
from penstock_service.ports.groups import GroupStore, MembershipStore
from penstock_service.ports.log import CompactionStore, LogIndex
from penstock_service.ports.push import PushStore
from penstock_service.ports.runtime import JobCursors, Runtime
from penstock_service.ports.schedules import ScheduleStore
from penstock_service.ports.segments import ArchiveStore, InlineStore, SegmentStore
from penstock_service.ports.share import ShareStore
from penstock_service.ports.timers import TimerStore
from penstock_service.ports.topics import TopicStore, ZoneStateStore
from penstock_service.ports.transactions import TransactionStore
from tests.support.moto_wire import answer_by_moto
from tests.support.tables import items_of

REGION = "us-east-1"
_EMPTY_TABLES: dict[str, Any] = {}  # of moto


@dataclass(frozen=True)
class Ports:
    topics: TopicStore
    log: LogIndex
    groups: GroupStore
    memberships: MembershipStore
    transactions: TransactionStore
    share: ShareStore
    compaction: CompactionStore
    segments: SegmentStore
    segments_by_hour: SegmentStore
    archive: ArchiveStore
    inline: InlineStore
    zone_states: ZoneStateStore
    acls: AclStore
    cursors: JobCursors
    audit: AuditStore
    timers: TimerStore
    push: PushStore
    schedules: ScheduleStore
    quotas: QuotaStore
    push_events: Callable[[], Sequence[PushEvent]]
    forget: Callable[[TransactionalId], object]  # as DynamoDB's TTL forgets an id past its end


def _sqlite(folder: Path) -> Iterator[Ports]:
    """A data folder. After each test, a new start finds all its items."""
    events: list[PushEvent] = []
    with pytest.MonkeyPatch.context() as patches:
        note = Items.note

        def note_and_tell(items: Items, change: Change) -> None:
            note(items, change)
            events.extend(_push_events_of(change))

        patches.setattr(Items, "note", note_and_tell)
        service = open_service(folder)
    stores = service.stores
    # `penstock dev` has no keys by hour.
    table_ports: dict[str, Any] = {name: getattr(stores, name) for name in TableStores.__annotations__}
    yield Ports(
        **table_ports,
        segments=stores.zones[0],
        segments_by_hour=ByHourSegmentStore(MemorySegmentStore("a", KeyLayout.BY_HOUR), stores.zones[0]),
        archive=stores.archive,
        push_events=lambda: events,
        forget=lambda name: service.tables.delete_item(TableName="log", Key=state_key(name)),
    )
    before = items_of(service.tables)
    service.close()
    again = open_service(folder)
    assert items_of(again.tables) == before
    again.close()


def _push_events_of(change: Change) -> list[PushEvent]:
    """What the stream of the log table tells of the change, if that is for dispatch."""
    event = parse_push_event(change.record) if change.table == "log" else None
    return [] if event is None else [event]


@pytest.fixture(scope="session")
def aws_clients() -> tuple[Any, Any]:
    """The clients of DynamoDB and S3: one pair for all tests, because boto3 reads a service's model for each client.

    moto answers them while a test has it switched on, with accounts that are empty at first.
    """
    session = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION)
    return session.client("dynamodb", config=Config(retries={"total_max_attempts": 1})), session.client("s3")


def _direct(dynamodb: Any, s3: Any) -> Iterator[Ports]:
    """The clients of functions in Lambda. The other clients make the tables and the buckets."""
    places, keys, calls = Places(region=REGION, endpoints={}), Keys("testing", "testing"), StorageCalls()
    runtime = Runtime(clock=SystemClock(), entropy=SystemEntropy(), executor=SequentialExecutor())
    direct_s3 = DirectS3(places, lambda: keys, runtime, calls, lambda: BotocoreDriver(s3))
    with pytest.MonkeyPatch.context() as patches:  # of its own: a test may undo those of its fixture
        answer_by_moto(patches)
        yield from _aws(dynamodb, DirectDynamoDb(places, lambda: keys, runtime.clock.now_ms, calls), direct_s3)


def _aws(dynamodb: Any, used_dynamodb: Any, used_s3: Any) -> Iterator[Ports]:
    with mock_aws():
        tables = dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].tables
        if not _EMPTY_TABLES:  # moto takes longer to make a table than most tests take
            for table in ("topics", "log", "groups"):
                create_table(dynamodb, table, is_streamed=table == "log")
            _EMPTY_TABLES.update(deepcopy(tables))
        tables.update(deepcopy(_EMPTY_TABLES))
        for bucket in ("zone-a", "zone-by-hour", "archive"):
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, REGION)
        yield _on_dynamodb(
            used_dynamodb,
            S3SegmentStore(lambda: used_s3, "zone-a", "a"),
            ByHourSegmentStore(
                S3SegmentStore(lambda: used_s3, "zone-by-hour", "a", KeyLayout.BY_HOUR),
                S3SegmentStore(lambda: used_s3, "zone-by-hour", "a"),
            ),
            S3ArchiveStore(lambda: used_s3, "archive"),
            _streamed_events,
        )


def _tables() -> Iterator[Ports]:
    """DynamoDB's adapters on tables in memory. At the end, no caller has changed a stored map."""
    events: list[PushEvent] = []
    stored: list[tuple[Any, Any]] = []

    def observe(change: Change) -> None:
        if change.new is not None:
            stored.append((change.new, deepcopy(change.new)))
        events.extend(_push_events_of(change))

    yield _on_dynamodb(
        Tables(SystemClock().now_ms, observe),
        MemorySegmentStore("a"),
        ByHourSegmentStore(MemorySegmentStore("a", KeyLayout.BY_HOUR), MemorySegmentStore("a")),
        MemoryArchiveStore("archive"),
        lambda: events,
    )
    assert all(item == as_stored for item, as_stored in stored)


def _on_dynamodb(
    driver: Any,
    segments: SegmentStore,
    segments_by_hour: SegmentStore,
    archive: ArchiveStore,
    push_events: Callable[[], Sequence[PushEvent]],
) -> Ports:
    client = DynamoDbClient(driver, SystemClock(), SystemEntropy())
    return Ports(
        **table_stores(client),
        segments=segments,
        segments_by_hour=segments_by_hour,
        archive=archive,
        push_events=push_events,
        forget=lambda name: driver.delete_item(TableName="log", Key=state_key(name)),
    )


@pytest.fixture(params=["tables", "sqlite", "aws", "direct"])
def ports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Ports]:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if request.param == "tables":
        yield from _tables()
    elif request.param == "sqlite":
        yield from _sqlite(tmp_path)
    elif request.param == "aws":
        dynamodb, s3 = request.getfixturevalue("aws_clients")
        yield from _aws(dynamodb, BotocoreDriver(dynamodb), BotocoreDriver(s3))
    else:
        yield from _direct(*request.getfixturevalue("aws_clients"))


def create_table(dynamodb: Any, name: str, *, is_streamed: bool = False) -> None:
    stream = {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}}
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
        **(stream if is_streamed else {}),
    )


def _streamed_events() -> list[PushEvent]:
    """What the stream of the log table tells of push waiters. moto keeps it, and answers no call for its shards."""
    stream = dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].tables["log"].stream_shard
    assert stream is not None
    events = [parse_push_event(record.to_json()["dynamodb"]) for record in stream.items]
    return [event for event in events if event is not None]
