"""Reads taken apart: the keys that a query asks for, and the answer with one page of items.

Sources: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.KeyConditionExpressions.html and
Query.Pagination.html there.

Writes taken apart: each is an action on one item, alone, in a batch, or in a transaction.

Sources: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateItem.html and, for the reasons of a
cancelled transaction, API_TransactWriteItems.html there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_core.limits import ITEM_BYTES_MAX
from penstock_core.storage.table_declarations import PARTITION_KEY, SORT_KEY
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.tables.parser import Names, Values
from penstock_service.adapters.tables.statements import KEYS, Statement, check_parameters, projected, statement_of
from penstock_service.adapters.tables.store import (
    Item,
    Place,
    Stored,
    check_key,
    item_of,
    key_of,
    measured_item,
    place_of,
    size_of,
)
from penstock_service.adapters.tables.values import invalid

Bound = tuple[Statement, Names, Values]
PAGE_BYTES_MAX = 2**20
_READ_UNIT_BYTES, _WRITE_UNIT_BYTES = 4_096, 1_024
BATCH_TABLE = frozenset({"Keys", "ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"})
GET = (BATCH_TABLE - {"Keys"}) | {"TableName", "Key", "ReturnConsumedCapacity"}
SCAN = (GET - {"Key"}) | {"ExpressionAttributeValues", "FilterExpression", "Limit", "ExclusiveStartKey"}
QUERY = SCAN | {"KeyConditionExpression", "ScanIndexForward", "Select"}
_CONDITION = frozenset(
    {
        "TableName",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)
_ACTIONS = {
    "Put": _CONDITION | {"Item"},
    "Update": _CONDITION | {"Key", "UpdateExpression"},
    "Delete": _CONDITION | {"Key"},
    "ConditionCheck": _CONDITION | {"Key"},
}
_CALLS = {kind: known | {"ReturnValues", "ReturnConsumedCapacity"} for kind, known in _ACTIONS.items()}
_RETURN_VALUES = {"Update": ("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW")}
_OLD_ALONE = ("NONE", "ALL_OLD")
_BATCHED = {"PutRequest": ("Put", "Item"), "DeleteRequest": ("Delete", "Key")}
_REFUSED = "The conditional request failed"
_NO_REASON = {"Code": "None"}
Reason = Mapping[str, Any]


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


@dataclass(slots=True)
class Action:
    """One write, or one check in a transaction, with its expressions bound. `item` is that of a put."""

    kind: str
    place: Place
    key: Item
    statement: Statement
    names: Names
    values: Values
    shows_item: bool
    item: Stored | None

    def refusal(self, old: Stored | None) -> AnsweredError | None:
        """The error if the condition does not hold."""
        condition = self.statement.condition
        if condition is None or condition.holds(item_of(old) or {}, self.names, self.values):
            return None
        shown = item_of(old) if self.shows_item else None
        return AnsweredError("ConditionalCheckFailedException", _REFUSED, item=shown)

    def result(self, old: Stored | None) -> Stored | None:
        """The item after the action. Raises ValidationException."""
        if self.kind == "Delete":
            return None
        if self.kind == "ConditionCheck":
            return old
        if self.item is not None:
            return self.item
        assert self.statement.update is not None
        new = self.statement.update.applied(*(old or measured_item(self.key)), self.names, self.values)
        if new[1] > ITEM_BYTES_MAX:
            raise invalid("Item size to update has exceeded the maximum allowed size")
        return new

    def outcome(self, old: Stored | None) -> tuple[Reason, Stored | None]:
        """The reason for which this action cancels its transaction, and the item after it."""
        refusal = self.refusal(old)
        if refusal is not None:
            shown = {} if refusal.item is None else {"Item": refusal.item}
            return {"Code": "ConditionalCheckFailed", "Message": _REFUSED, **shown}, None
        try:
            return _NO_REASON, self.result(old)
        except AnsweredError as error:
            return {"Code": "ValidationError", "Message": str(error).removeprefix(f"{error.code}: ")}, None

    def returned(self, wanted: str, old: Stored | None, new: Stored | None) -> Item | None:
        """The Attributes of the answer, for the ReturnValues that the call asks for."""
        item = item_of(old if wanted.endswith("_OLD") else new)
        if item is None or not wanted.startswith("UPDATED"):
            return item
        paths = () if self.statement.update is None else self.statement.update.paths
        if any(len(path) > 1 for path in paths):
            raise NotImplementedError(f"{wanted} of the tables in memory tells of whole attributes only")
        roots = [self.names.get(str(path[0]), str(path[0])) for path in paths]
        return {root: item[root] for root in roots if root in item} or None


def single_action(kind: str, arguments: Mapping[str, Any]) -> Action:
    """The action of a PutItem, UpdateItem or DeleteItem. Raises ValidationException."""
    check_parameters(kind, arguments, _CALLS[kind])
    allowed = _RETURN_VALUES.get(kind, _OLD_ALONE)
    if arguments.get("ReturnValues", "NONE") not in allowed:
        raise invalid(f"ReturnValues can only be {' or '.join(allowed)}")
    return action(kind, arguments)


def transacted_action(given: Mapping[str, Any]) -> Action:
    """One action of a TransactWriteItems. Raises ValidationException."""
    if len(given) != 1 or not given.keys() <= _ACTIONS.keys():
        raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
    [(kind, arguments)] = given.items()
    check_parameters(kind, arguments, _ACTIONS[kind])
    if kind == "ConditionCheck" and "ConditionExpression" not in arguments:
        raise invalid("The parameter 'ConditionExpression' is required but was not present in the request")
    return action(kind, arguments)


def batched_actions(requests: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[tuple[Action, Any]]:
    """Each action of a BatchWriteItem, and its request. Raises ValidationException."""
    for table, writes in requests.items():
        for request in writes:
            if len(request) != 1 or not request.keys() <= _BATCHED.keys():
                raise invalid("a request of BatchWriteItem is one PutRequest or one DeleteRequest")
            [(name, arguments)] = request.items()
            kind, member = _BATCHED[name]
            check_parameters(name, arguments, {member})
            yield action(kind, {"TableName": table, **arguments}), request


def action(kind: str, arguments: Mapping[str, Any]) -> Action:
    """One write taken apart. Raises ValidationException."""
    statement = statement_of(arguments)
    names, values = statement.bound(arguments)
    shows = arguments.get("ReturnValuesOnConditionCheckFailure", "NONE")
    if shows not in _OLD_ALONE:
        raise invalid(f"ReturnValuesOnConditionCheckFailure can only be {' or '.join(_OLD_ALONE)}")
    item = None
    if kind == "Put":
        item = measured_item(arguments["Item"])
        if item[1] > ITEM_BYTES_MAX:
            raise invalid("Item size has exceeded the maximum allowed size")
        key = key_of(item[0])
    else:
        key = arguments["Key"]
        if kind == "Update" and statement.update is None:
            raise TypeError("the tables in memory make no update without an UpdateExpression")
    place = (arguments["TableName"], *place_of(key))
    return Action(kind, place, key, statement, names, values, shows == "ALL_OLD", item)


def cancel_if_any(reasons: Sequence[Reason]) -> None:
    """Raises TransactionCanceledException if one of the actions has a reason."""
    codes = [reason["Code"] for reason in reasons]
    if codes.count("None") < len(codes):
        raise AnsweredError(
            "TransactionCanceledException",
            f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]",
            reasons=reasons,
        )


def reason_if(is_so: bool, code: str, message: str) -> Reason:
    """The reason of an action that cannot be applied now."""
    return {"Code": code, "Message": message} if is_so else _NO_REASON
