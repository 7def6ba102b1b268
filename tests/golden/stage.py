"""A whole Penstock on boto3 and moto, or in a data folder of `penstock dev`, and everything that it stores."""

import base64
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import boto3
from botocore.config import Config
from moto import mock_aws

from penstock_service.adapters.absent import NoTimerTriggers
from penstock_service.adapters.aws import Storage, ZoneBucket, aws_instance
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.adapters.sqlite.service import open_service
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import SequentialExecutor
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from penstock_service.stores import Stores
from tests.handlers.service import Service
from tests.support.service import SteppedClock

TABLES = ("topics", "log", "groups")
BUCKETS = ("zone-a", "zone-b", "zone-c", "archive")
_KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
_STORAGE = Storage(
    topics_table="topics",
    log_table="log",
    groups_table="groups",
    repair_queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/repairs",
    zones=tuple(ZoneBucket(name=name, bucket=f"zone-{name}") for name in "abc"),
    archive="archive",
    region="us-east-1",
    access_key="testing",
    secret_key="testing",
)

_BEGIN_MS = 1_800_000_000_000.0

Item = dict[str, Any]


class _RepeatableEntropy:
    """Entropy that gives the same bytes in every run."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


@dataclass(frozen=True)
class Stage:
    """A stage in this process. `service` sends requests to its handlers."""

    instance: Instance
    service: Service
    clock: SteppedClock
    dynamodb: Any
    s3: Any

    def items(self, table: str) -> list[Item]:
        """Every item of the table, sorted by key."""
        found: list[Item] = self.dynamodb.scan(TableName=table)["Items"]
        return sorted(found, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))

    def put(self, table: str, item: Item) -> None:
        self.dynamodb.put_item(TableName=table, Item=item)

    def stored(self) -> dict[str, Any]:
        """All items and objects, with bytes in base64. Equal objects of several buckets are there once."""
        objects: dict[str, Any] = {}
        for bucket in BUCKETS:
            for listed in self.s3.list_objects_v2(Bucket=bucket).get("Contents", ()):
                body = self.s3.get_object(Bucket=bucket, Key=listed["Key"])["Body"].read()
                entry = objects.setdefault(listed["Key"], {"body": base64.b64encode(body).decode(), "buckets": []})
                entry["buckets"].append(bucket)
        tables = {table: [as_json(item) for item in self.items(table)] for table in TABLES}
        return {"at_ms": self.clock.now_ms(), "tables": tables, "objects": objects}

    def load(self, stored: Mapping[str, Any]) -> None:
        """Stores what `stored` gave, and sets the clock to its time."""
        for table, items in stored["tables"].items():
            for item in items:
                self.put(table, from_json(item))
        for key, entry in stored["objects"].items():
            for bucket in entry["buckets"]:
                self.s3.put_object(Bucket=bucket, Key=key, Body=base64.b64decode(entry["body"]))
        self.clock.time_ms = float(stored["at_ms"])


@contextmanager
def empty_stage(seed: int = 1) -> Iterator[Stage]:
    """A stage that stores nothing yet. Another seed draws other ids."""
    with mock_aws():
        dynamodb = boto3.client("dynamodb", config=Config(retries={"total_max_attempts": 1}), **_KEYS)
        s3 = boto3.client("s3", **_KEYS)
        boto3.client("sqs", **_KEYS).create_queue(QueueName="repairs")
        for table in TABLES:
            dynamodb.create_table(
                TableName=table,
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
                KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
                BillingMode="PAY_PER_REQUEST",
            )
        for bucket in BUCKETS:
            s3.create_bucket(Bucket=bucket)
        stores = replace(aws_instance(_STORAGE, StorageCalls()).stores, timer_triggers=NoTimerTriggers())
        yield _stage(stores, _stepped_clock(), seed, dynamodb, s3)


@contextmanager
def folder_stage(folder: Path, seed: int = 1, at_ms: float = _BEGIN_MS) -> Iterator[Stage]:
    """The stage of a data folder at that time. It has no client of S3."""
    clock = _stepped_clock(at_ms)
    service = open_service(folder, clock)
    try:
        yield _stage(service.stores, clock, seed, service.tables, None)
    finally:
        service.close()


def dumped_folder(folder: Path) -> str:
    """The database of a closed data folder, as SQL."""
    with closing(sqlite3.connect(folder / "penstock.db")) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def load_folder(folder: Path, sql: str) -> None:
    """Makes the data folder from its SQL."""
    with closing(sqlite3.connect(folder / "penstock.db")) as connection:
        connection.executescript(sql)


def _stage(stores: Stores, clock: SteppedClock, seed: int, dynamodb: Any, s3: Any) -> Stage:
    runtime = Runtime(clock=clock, entropy=_RepeatableEntropy(seed), executor=SequentialExecutor())
    instance = Instance.new(replace(stores, wake_ups=MemoryWakeUps()), runtime)
    return Stage(instance, Service(instance), clock, dynamodb, s3)


def _stepped_clock(time_ms: float = _BEGIN_MS) -> SteppedClock:
    clock = SteppedClock()
    clock.time_ms = time_ms
    return clock


def as_json(value: Any) -> Any:
    """The item with base64 text in place of bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list) else value


def from_json(value: Any) -> Any:
    """The inverse of `as_json`: `{"B": text}` is a binary value."""
    if isinstance(value, dict):
        if value.keys() == {"B"} and isinstance(value["B"], str):
            return {"B": base64.b64decode(value["B"])}
        return {name: from_json(each) for name, each in value.items()}
    return [from_json(each) for each in value] if isinstance(value, list) else value
