"""Tables in memory: all items, a client, and a check of an update."""

from collections.abc import Mapping
from typing import Any

from penstock_core.storage.item import ConditionalUpdate
from penstock_core.storage.table_declarations import TABLES
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.system import SystemClock, SystemEntropy
from penstock_service.adapters.tables.tables import InterposedTables, Tables
from penstock_service.instance.instance import Instance

Items = Mapping[tuple[str, str, str], Mapping[str, Any]]


def items_of(tables: Tables) -> Items:
    """The items by table, partition key and sort key."""
    found = {}
    for table in TABLES:
        start: dict[str, Any] = {}
        while True:
            answer = tables.scan(TableName=table, **start)
            found.update({(table, item["pk"]["S"], item["sk"]["S"]): item for item in answer["Items"]})
            if "LastEvaluatedKey" not in answer:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    return found


def tables_of(instance: Instance) -> Tables:
    """The tables of a service in memory."""
    store: Any = instance.stores.transactions
    tables = store._client._driver
    tables = tables._tables if isinstance(tables, InterposedTables) else tables
    assert isinstance(tables, Tables)
    return tables


def copy_stored(given: Instance, empty: Instance) -> None:
    """Let a new service in memory hold the items and segments of another one. It shares nothing with it.

    A world of many requests is made once, and copied for each test in a hundredth of the time.
    """
    tables = tables_of(empty)._tables
    for name, table in tables_of(given)._tables.items():
        for partition, held in table.partitions.items():
            for sort, stored in held.items.items():
                tables[name].put(partition, sort, stored, None)
    zones: Any = zip(given.stores.zones, empty.stores.zones, strict=True)
    for zone, copy in zones:
        copy.segments.update(zone.segments)


def memory_client(tables: Tables | InterposedTables | None = None) -> DynamoDbClient:
    """A client of these tables; of empty ones if you give none."""
    return DynamoDbClient(tables or Tables(SystemClock().now_ms), SystemClock(), SystemEntropy())


def check_update(update: ConditionalUpdate) -> None:
    """Raises unless DynamoDB takes the update: its syntax, its bounds and its names. The condition may fail."""
    try:
        Tables(SystemClock().now_ms).update_item(TableName="log", **update.arguments())
    except AnsweredError as error:
        if error.code != "ConditionalCheckFailedException":
            raise
