"""A call to DynamoDB: the items that it writes and reads, by the key schema of their tables.

The size of a DynamoDB item in bytes, as DynamoDB counts it for capacity.

Source: docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html: names and values in
UTF-8, 1 byte for a boolean or null, about half a byte a digit plus 1 for a number, 3 bytes for a list or map plus 1 for
each element.
"""

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localstack.like_aws.exchange import Request

_TARGET = "DynamoDB_20120810."
_EQUALS = re.compile(r"(#?[A-Za-z_][\w.-]*)\s*=\s*(:\w+)")
WRITES = {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
READS = {"GetItem", "BatchGetItem", "Query", "Scan", "TransactGetItems"}
_WRITE_UNIT_BYTES = 1024
_READ_UNIT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ItemKey:
    """An item's place. `partition` and `whole` are the JSON of its partition key, and of all its key attributes."""

    table: str
    partition: str
    whole: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the rules need to know of a table. `keys` are its key attributes, the partition key first."""

    name: str
    arn: str
    keys: tuple[str, ...]
    is_on_demand: bool

    def key_of(self, attributes: Mapping[str, Any]) -> ItemKey:
        """The place of an item with these attributes, or of the key itself."""
        found = [attributes.get(name) for name in self.keys]
        return ItemKey(self.name, json.dumps(found[0], sort_keys=True), json.dumps(found, sort_keys=True))


def operation_of(request: Request) -> str:
    """The operation, such as PutItem. "" if the request is none of DynamoDB's."""
    target = request.header("x-amz-target")
    return target.removeprefix(_TARGET) if target.startswith(_TARGET) else ""


def table_names(operation: str, data: Mapping[str, Any]) -> set[str]:
    """The names of the tables that the call is about."""
    if operation in ("BatchWriteItem", "BatchGetItem"):
        return set(data["RequestItems"])
    if operation in ("TransactWriteItems", "TransactGetItems"):
        return {action["TableName"] for action in actions_of(data)}
    return {data["TableName"]}


def actions_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The actions of a transaction, each as `{"TableName": ..., "Key" or "Item": ...}`."""
    return [next(iter(each.values())) for each in data["TransactItems"]]


def item_keys(operation: str, data: Mapping[str, Any], tables: Mapping[str, Table]) -> list[ItemKey]:
    """The items of the call, in its order. A Query has one with its partition key, a Scan none."""
    match operation:
        case "BatchWriteItem":
            requests = [
                (name, next(iter(each.values()))) for name, many in data["RequestItems"].items() for each in many
            ]
            return [tables[name].key_of(each.get("Item") or each.get("Key")) for name, each in requests]
        case "BatchGetItem":
            return [tables[name].key_of(key) for name, each in data["RequestItems"].items() for key in each["Keys"]]
        case "TransactWriteItems" | "TransactGetItems":
            return [tables[each["TableName"]].key_of(each.get("Item") or each["Key"]) for each in actions_of(data)]
        case "Query":
            value = _partition_value(data, tables[data["TableName"]].keys[0])
            return [] if value is None else [ItemKey(data["TableName"], json.dumps(value, sort_keys=True), "")]
        case "Scan":
            return []
        case _:
            return [tables[data["TableName"]].key_of(data.get("Item") or data["Key"])]


def _partition_value(data: Mapping[str, Any], partition_key: str) -> Any:
    """The value that a Query wants of the partition key. None for a query of an index."""
    for name, value in _EQUALS.findall(data.get("KeyConditionExpression", "")):
        if data.get("ExpressionAttributeNames", {}).get(name, name) == partition_key:
            return data.get("ExpressionAttributeValues", {}).get(value)
    return None


def write_units(size_bytes: int) -> float:
    """The units of a write of an item of that size: one for each started KiB, at least one."""
    return float(max(1, math.ceil(size_bytes / _WRITE_UNIT_BYTES)))


def read_units(size_bytes: int, *, is_consistent: bool) -> float:
    """The units of a read of so many bytes: one for each started 4 KiB, at least one; half if not consistent."""
    return max(1, math.ceil(size_bytes / _READ_UNIT_BYTES)) * (1.0 if is_consistent else 0.5)


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """The size of an item in DynamoDB's JSON, such as `{"pk": {"S": "a"}}`."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _number_bytes(content)
        case "B":
            return len(base64.b64decode(content))
        case "BOOL" | "NULL":
            return 1
        case "L":
            return 3 + sum(1 + _value_bytes(each) for each in content)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(each) for name, each in content.items())
        case _:  # SS, NS, BS
            return sum(_value_bytes({kind[0]: each}) for each in content)


def _number_bytes(text: str) -> int:
    digits = text.lstrip("+-").lower().partition("e")[0].replace(".", "").strip("0")
    return 1 + math.ceil(len(digits) / 2) + text.startswith("-")
