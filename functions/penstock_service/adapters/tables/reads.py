"""Reads taken apart: the keys that a query asks for, and the answer with one page of items.

Sources: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.KeyConditionExpressions.html and
Query.Pagination.html there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock_core.storage.table_declarations import PARTITION_KEY, SORT_KEY
from penstock_service.adapters.tables.parser import Names, Values
from penstock_service.adapters.tables.statements import KEYS, Statement, check_parameters, projected, statement_of
from penstock_service.adapters.tables.store import Stored, check_key, key_of, size_of
from penstock_service.adapters.tables.values import invalid

Bound = tuple[Statement, Names, Values]

PAGE_BYTES_MAX = 2**20
_READ_UNIT_BYTES, _WRITE_UNIT_BYTES = 4_096, 1_024

BATCH_TABLE = frozenset({"Keys", "ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"})
GET = (BATCH_TABLE - {"Keys"}) | {"TableName", "Key", "ReturnConsumedCapacity"}
SCAN = (GET - {"Key"}) | {"ExpressionAttributeValues", "FilterExpression", "Limit", "ExclusiveStartKey"}
QUERY = SCAN | {"KeyConditionExpression", "ScanIndexForward", "Select"}


def bound(operation: str, arguments: Mapping[str, Any], known: frozenset[str]) -> Bound:
    """The statement of a read, with its names and values. Raises ValidationException."""
    check_parameters(operation, arguments, known)
    statement = statement_of(arguments)
    names, values = statement.bound(arguments)
    if arguments.get("Limit", 1) < 1:
        raise invalid("Limit: Member must have value greater than or equal to 1")
    if operation == "query" and statement.filter is not None:
        looked_at = {names.get(root, root) for root in statement.filter.roots}
        if not looked_at.isdisjoint(KEYS):
            raise invalid(
                f"Filter Expression can only contain non-primary key attributes: Primary key attribute: "
                f"{min(looked_at.intersection(KEYS))}"
            )
    return statement, names, values


def asked_keys(read: Bound) -> tuple[str, str, Sequence[str]]:
    """The partition key that a query asks for, and the operator and the bounds of its sort key; "" without."""
    statement, names, values = read
    if statement.key_condition is None:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
    asked: dict[str, tuple[str, Sequence[str]]] = {}
    for name, sign, placeholders in statement.key_condition.tests:
        key = names.get(name, name)
        if key in asked or key not in KEYS or (key == PARTITION_KEY and sign != "="):
            raise invalid("Query key condition not supported")
        asked[key] = sign, [_key_text(key, values[each]) for each in placeholders]
    if PARTITION_KEY not in asked:
        raise invalid(f"Query condition missed key schema element: {PARTITION_KEY}")
    return asked[PARTITION_KEY][1][0], *asked.get(SORT_KEY, ("", ()))


def page(images: Iterable[Stored], read: Bound, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As many items as an answer holds. `LastEvaluatedKey` says that more may follow."""
    statement, names, values = read
    limit = arguments.get("Limit")
    scanned: list[Stored] = []
    size, is_cut = 0, False
    for stored in images:
        is_cut = bool(scanned) and (len(scanned) == limit or size + stored[1] > PAGE_BYTES_MAX)
        if is_cut:
            break
        scanned.append(stored)
        size += stored[1]
    holds = None if statement.filter is None else statement.filter.holds
    items = [projected(item, statement, names) for item, _ in scanned if holds is None or holds(item, names, values)]
    answer: dict[str, Any] = {"Items": items, "Count": len(items), "ScannedCount": len(scanned)}
    if (select := arguments.get("Select")) is not None:
        if select != "COUNT":
            raise NotImplementedError(f"the tables in memory select no {select}")
        del answer["Items"]
    if is_cut or (limit is not None and len(scanned) == limit):
        answer["LastEvaluatedKey"] = key_of(scanned[-1][0])
    return answer | consumed(arguments, read_units(size, is_consistent=arguments.get("ConsistentRead", False)))


def read_units(size: int, *, is_consistent: bool) -> float:
    """The read units of so many bytes."""
    return max(1, -(-size // _READ_UNIT_BYTES)) * (1.0 if is_consistent else 0.5)


def write_units(old: Stored | None, new: Stored | None) -> float:
    """The write units of one write."""
    return float(max(1, -(-max(size_of(old), size_of(new)) // _WRITE_UNIT_BYTES)))


def consumed(arguments: Mapping[str, Any], units: float) -> dict[str, Any]:
    """The consumed capacity in an answer, if the call asks for it."""
    wanted = arguments.get("ReturnConsumedCapacity", "NONE")
    if wanted == "NONE":
        return {}
    if wanted != "TOTAL":
        raise NotImplementedError(f"the tables in memory tell no consumed capacity by {wanted}")
    return {"ConsumedCapacity": {"TableName": arguments["TableName"], "CapacityUnits": units}}


def _key_text(key: str, value: Mapping[str, Any]) -> str:
    if "S" not in value:
        raise invalid("One or more parameter values were invalid: Condition parameter type does not match schema type")
    text: str = value["S"]
    check_key(key, text)
    return text
