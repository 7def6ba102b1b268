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
    assert isinstance(tables, Tables)
    return tables


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
