"""All items of tables in memory."""

from collections.abc import Mapping
from typing import Any

from penstock_core.storage.table_declarations import TABLES
from penstock_service.adapters.tables.tables import Tables

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
