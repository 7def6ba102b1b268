"""The broker of this function instance, made from its environment at the first request and then kept."""

import os
from datetime import datetime
from functools import cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.utils import parse_timestamp

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_broker.adapters.dynamodb.cursors import DynamoDbJobCursors
from penstock_broker.adapters.dynamodb.groups import DynamoDbGroupStore
from penstock_broker.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_broker.adapters.dynamodb.memberships import DynamoDbMembershipStore
from penstock_broker.adapters.dynamodb.topics import DynamoDbTopicStore
from penstock_broker.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_broker.adapters.dynamodb.zones import DynamoDbZoneStateStore
from penstock_broker.adapters.s3 import S3SegmentStore
from penstock_broker.adapters.sqs import SqsRepairQueue
from penstock_broker.adapters.storage_calls import StorageCalls
from penstock_broker.adapters.system import SystemChance, SystemClock, Threads
from penstock_broker.broker import Broker
from penstock_broker.directory import TopicDirectory
from penstock_broker.group_directory import GroupDirectory
from penstock_broker.zone_directory import ZoneDirectory

STORAGE_CALLS = StorageCalls()

# An append must never be sent again by the driver (adapters/dynamodb/client.py).
_DYNAMODB = Config(
    retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=5, max_pool_connections=32, tcp_keepalive=True
)
# Checksums are ours: CRC-32C given with each put, and in each batch for reads.
_S3 = Config(
    retries={"mode": "standard", "total_max_attempts": 2},
    connect_timeout=1,
    read_timeout=5,
    max_pool_connections=32,
    tcp_keepalive=True,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
# A report must not hold up the read that it comes from.
_SQS = Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=1)


def parse_time(value: Any) -> datetime:
    """botocore's `parse_timestamp`, whose way with what S3 sends is most of what listing 1,000 objects costs."""
    is_iso = isinstance(value, str) and value[10:11] == "T"
    return datetime.fromisoformat(value) if is_iso else parse_timestamp(value)


@cache
def broker() -> Broker:
    """Reads `PENSTOCK_{TOPICS,LOG,GROUPS}_TABLE`, `PENSTOCK_REPAIR_QUEUE_URL` and `PENSTOCK_ZONES`
    (`a=<bucket>,b=<bucket>,…`, whose order is each zone's bit in a ref). Sends no call."""
    clock, chance = SystemClock(), SystemChance()
    core = botocore.session.get_session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    session = boto3.session.Session(botocore_session=core)
    driver, s3 = session.client("dynamodb", config=_DYNAMODB), session.client("s3", config=_S3)
    STORAGE_CALLS.watch(driver)
    STORAGE_CALLS.watch(s3)
    dynamodb = DynamoDbClient(driver, clock, chance)
    topics = DynamoDbTopicStore(dynamodb, os.environ["PENSTOCK_TOPICS_TABLE"])
    zone_states = DynamoDbZoneStateStore(dynamodb, os.environ["PENSTOCK_TOPICS_TABLE"])
    memberships = DynamoDbMembershipStore(dynamodb, os.environ["PENSTOCK_GROUPS_TABLE"])
    zones = [zone.split("=", 1) for zone in os.environ["PENSTOCK_ZONES"].split(",")]
    return Broker(
        topics=topics,
        log=DynamoDbLogIndex(dynamodb, os.environ["PENSTOCK_LOG_TABLE"]),
        groups=DynamoDbGroupStore(dynamodb, os.environ["PENSTOCK_GROUPS_TABLE"]),
        memberships=memberships,
        transactions=DynamoDbTransactionStore(
            dynamodb, os.environ["PENSTOCK_LOG_TABLE"], os.environ["PENSTOCK_GROUPS_TABLE"]
        ),
        zone_states=zone_states,
        cursors=DynamoDbJobCursors(dynamodb, os.environ["PENSTOCK_TOPICS_TABLE"]),
        zones=[S3SegmentStore(s3, bucket, zone) for zone, bucket in zones],
        repair_queue=SqsRepairQueue(
            lambda: session.client("sqs", config=_SQS), os.environ["PENSTOCK_REPAIR_QUEUE_URL"]
        ),
        parallel=Threads(),
        clock=clock,
        chance=chance,
        directory=TopicDirectory(topics, clock),
        zone_directory=ZoneDirectory(zone_states, clock),
        group_directory=GroupDirectory(memberships, clock),
    )
