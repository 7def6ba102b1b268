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

COLLECTION_ELEMENT_BYTES = 1  # of an element of a map or list, besides its own bytes and its name's
_COLLECTION_BYTES = 3
_OPERATORS = re.compile(r"<=|>=|<>|[=<>+]|(?<=\s)-(?=\s)|\b(?:AND|OR|NOT|BETWEEN|IN|REMOVE)\b|\w+\(|,")


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item in its low-level form, as DynamoDB counts it: names, values and overhead."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Mapping[str, Any]) -> int:
    """The size of an attribute's value, without its name."""
    [(kind, content)] = value.items()
    if kind == "B":
        return len(content)
    if kind == "N":
        return _number_bytes(content)
    if kind == "S":
        return len(content) if content.isascii() else len(content.encode())
    if kind == "L":
        return _COLLECTION_BYTES + sum(map(value_bytes, content)) + COLLECTION_ELEMENT_BYTES * len(content)
    if kind == "M":
        return _COLLECTION_BYTES + item_bytes(content) + COLLECTION_ELEMENT_BYTES * len(content)
    if kind == "NS":
        return sum(map(_number_bytes, content))
    return sum(len(each) if kind == "BS" else len(each.encode()) for each in content) if kind in ("SS", "BS") else 1


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


def _number_bytes(text: str) -> int:
    return len(text) // 2 + 2  # at most: 1 byte, and 1 for two digits


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.STORAGE_REFUSED, f"DynamoDB takes no such write: {why}")
