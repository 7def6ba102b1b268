"""DynamoDB's limits on what is written, for the adapters in memory: they refuse what DynamoDB would refuse.

Sources, of Amazon DynamoDB's developer guide: "Quotas in Amazon DynamoDB", "DynamoDB item sizes and formats", and
"Constraints in Amazon DynamoDB" (transactions, expressions).
"""

import re
from collections.abc import Mapping
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    EXPRESSION_BYTES_MAX,
    EXPRESSION_OPERATORS_MAX,
    ITEM_BYTES_MAX,
    TRANSACTION_ACTIONS_MAX,
)
from penstock_core.storage.item import ConditionalUpdate

_COLLECTION_BYTES = 3
_ELEMENT_BYTES = 1
_OPERATORS = re.compile(r"<=|>=|<>|[=<>+]|(?<=\s)-(?=\s)|\b(?:AND|OR|NOT|BETWEEN|IN|REMOVE)\b|\w+\(|,")


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item in its low-level form, as DynamoDB counts it: names, values and overhead."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def check_item(item: Mapping[str, Any]) -> None:
    """Raises STORAGE_REFUSED, as the adapters on DynamoDB do, for an item that is too large."""
    if (size := item_bytes(item)) > ITEM_BYTES_MAX:
        raise _refused(f"the item would have {size} bytes, {ITEM_BYTES_MAX} at most")


def check_update(update: ConditionalUpdate) -> None:
    """Raises STORAGE_REFUSED for an expression that is too long, or has too many operators and functions."""
    for expression in (update.update, update.condition):
        if len(expression.encode()) > EXPRESSION_BYTES_MAX:
            raise _refused(f"an expression of {len(expression.encode())} bytes, {EXPRESSION_BYTES_MAX} at most")
    operators = sum(len(_OPERATORS.findall(expression)) for expression in (update.update, update.condition))
    if operators > EXPRESSION_OPERATORS_MAX:
        raise _refused(f"expressions with {operators} operators, {EXPRESSION_OPERATORS_MAX} at most")


def check_actions(count: int) -> None:
    """Raises STORAGE_REFUSED for a transaction with too many actions."""
    if count > TRANSACTION_ACTIONS_MAX:
        raise _refused(f"a transaction of {count} actions, {TRANSACTION_ACTIONS_MAX} at most")


def _value_bytes(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            return len(content) // 2 + 2  # at most: 1 byte, and 1 for two digits
        case "L":
            return _COLLECTION_BYTES + sum(_ELEMENT_BYTES + _value_bytes(each) for each in content)
        case "M":
            return _COLLECTION_BYTES + sum(
                _ELEMENT_BYTES + len(name.encode()) + _value_bytes(each) for name, each in content.items()
            )
        case _:
            return 1  # BOOL and NULL


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.STORAGE_REFUSED, f"DynamoDB takes no such write: {why}")
