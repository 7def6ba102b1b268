"""The size of an item, as DynamoDB counts it.

Source: "DynamoDB item sizes and formats" in Amazon DynamoDB's developer guide.
"""

from collections.abc import Mapping
from typing import Any

COLLECTION_ELEMENT_BYTES = 1  # of an element of a map or list, besides its own bytes and its name's
_COLLECTION_BYTES = 3


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


def _number_bytes(text: str) -> int:
    return len(text) // 2 + 2  # at most: 1 byte, and 1 for two digits
