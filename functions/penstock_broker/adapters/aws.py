"""A broker on AWS: where it keeps its data, and the clients that reach it; for functions and Spark jobs alike."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.utils import parse_timestamp

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_broker.adapters.dynamodb.compaction import DynamoDbCompactionStore
from penstock_broker.adapters.dynamodb.cursors import DynamoDbJobCursors
from penstock_broker.adapters.dynamodb.groups import DynamoDbGroupStore
from penstock_broker.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_broker.adapters.dynamodb.memberships import DynamoDbMembershipStore
from penstock_broker.adapters.dynamodb.topics import DynamoDbTopicStore
from penstock_broker.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_broker.adapters.dynamodb.zones import DynamoDbZoneStateStore
from penstock_broker.adapters.s3 import S3SegmentStore
from penstock_broker.adapters.s3_archive import S3ArchiveStore
from penstock_broker.adapters.sqs import SqsRepairQueue
from penstock_broker.adapters.storage_calls import StorageCalls
from penstock_broker.adapters.system import SystemChance, SystemClock, Threads
from penstock_broker.broker import Broker
from penstock_broker.directory import TopicDirectory
from penstock_broker.group_directory import GroupDirectory
from penstock_broker.zone_directory import ZoneDirectory

_CONNECTIONS = 32
# botocore's own, of 16 parts, is put together twice for each call, which takes a seventh of a warm append's CPU.
_USER_AGENT = "penstock"
# An append must never be sent again by the driver (adapters/dynamodb/client.py).
_DYNAMODB = Config(
    retries={"total_max_attempts": 1},
    connect_timeout=1,
    read_timeout=5,
    max_pool_connections=_CONNECTIONS,
    tcp_keepalive=True,
    user_agent=_USER_AGENT,
)
# Checksums are ours: CRC-32C given with each put, and in each batch for reads.
_S3 = Config(
    retries={"mode": "standard", "total_max_attempts": 2},
    connect_timeout=1,
    read_timeout=5,
    max_pool_connections=_CONNECTIONS,
    tcp_keepalive=True,
    user_agent=_USER_AGENT,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
# A report must not hold up the read that it comes from.
_SQS = Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=1, user_agent=_USER_AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where a Penstock keeps its data; a value that can be sent to other processes.

    `zones` are pairs of name and bucket, whose order is each zone's bit in a ref; `archive` is a bucket. What is None,
    botocore's own chain finds; `access_key` and `secret_key` are there for the local stack only. `results` is the
    bucket that jobs put results into, and `catalog` where they register tables (iceberg_table.py); functions need
    neither.
    """

    topics_table: str
    log_table: str
    groups_table: str
    repair_queue_url: str
    zones: tuple[tuple[str, str], ...]
    archive: str
    results: str | None = None
    catalog: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)


def storage_of_environment(environ: Mapping[str, str] = os.environ) -> Storage:
    """Reads `PENSTOCK_{TOPICS,LOG,GROUPS}_TABLE`, `PENSTOCK_REPAIR_QUEUE_URL`, `PENSTOCK_ZONES`
    (`a=<bucket>,b=<bucket>,…`) and `PENSTOCK_ARCHIVE`."""
    return Storage(
        topics_table=environ["PENSTOCK_TOPICS_TABLE"],
        log_table=environ["PENSTOCK_LOG_TABLE"],
        groups_table=environ["PENSTOCK_GROUPS_TABLE"],
        repair_queue_url=environ["PENSTOCK_REPAIR_QUEUE_URL"],
        zones=parse_zones(environ["PENSTOCK_ZONES"]),
        archive=environ["PENSTOCK_ARCHIVE"],
    )


def parse_zones(text: str) -> tuple[tuple[str, str], ...]:
    """The pairs of `a=<bucket>,b=<bucket>,…`. Raises ValueError with the part that is none."""
    pairs = []
    for part in text.split(","):
        name, _, bucket = part.partition("=")
        if not (name and bucket):
            raise ValueError(f"{part!r} in {text!r} is no zone: give NAME=BUCKET,NAME=BUCKET,…")
        pairs.append((name, bucket))
    return tuple(pairs)


def aws_broker(storage: Storage, calls: StorageCalls) -> Broker:
    """A broker on that storage, whose calls to DynamoDB and S3 are counted in `calls`. Sends no call."""
    clock, chance = SystemClock(), SystemChance()
    client = _clients(storage)
    driver, s3 = client("dynamodb", _DYNAMODB), client("s3", _S3)
    calls.watch(driver)
    calls.watch(s3)
    dynamodb = DynamoDbClient(driver, clock, chance)
    topics = DynamoDbTopicStore(dynamodb, storage.topics_table)
    zone_states = DynamoDbZoneStateStore(dynamodb, storage.topics_table)
    memberships = DynamoDbMembershipStore(dynamodb, storage.groups_table)
    return Broker(
        topics=topics,
        log=DynamoDbLogIndex(dynamodb, storage.log_table),
        groups=DynamoDbGroupStore(dynamodb, storage.groups_table),
        memberships=memberships,
        transactions=DynamoDbTransactionStore(dynamodb, storage.log_table, storage.groups_table),
        compaction=DynamoDbCompactionStore(dynamodb, storage.log_table),
        zone_states=zone_states,
        cursors=DynamoDbJobCursors(dynamodb, storage.topics_table),
        zones=[S3SegmentStore(s3, bucket, zone) for zone, bucket in storage.zones],
        archive=S3ArchiveStore(s3, storage.archive),
        repair_queue=SqsRepairQueue(lambda: client("sqs", _SQS), storage.repair_queue_url),
        parallel=Threads(),
        clock=clock,
        chance=chance,
        directory=TopicDirectory(topics, clock),
        zone_directory=ZoneDirectory(zone_states, clock),
        group_directory=GroupDirectory(memberships, clock),
    )


def parse_time(value: Any) -> datetime:
    """botocore's `parse_timestamp`, whose way with what S3 sends is most of what listing 1,000 objects costs."""
    is_iso = isinstance(value, str) and value[10:11] == "T"
    return datetime.fromisoformat(value) if is_iso else parse_timestamp(value)


def _clients(storage: Storage) -> Callable[[str, Config], Any]:
    core = botocore.session.get_session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    session = boto3.session.Session(
        botocore_session=core,
        region_name=storage.region,
        aws_access_key_id=storage.access_key,
        aws_secret_access_key=storage.secret_key,
    )
    return lambda service, config: session.client(service, config=config, endpoint_url=storage.endpoint_url)
