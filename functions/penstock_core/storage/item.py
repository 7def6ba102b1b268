"""DynamoDB items in their low-level form (`{"N": "1"}`), and conditional writes of one. All items build on it.

The size of an item, as DynamoDB counts it.

Source: "DynamoDB item sizes and formats" in Amazon DynamoDB's developer guide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Item = dict[str, Any]
COLLECTION_ELEMENT_BYTES = 1  # of an element of a map or list, besides its own bytes and its name's
_COLLECTION_BYTES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalUpdate:
    """The arguments of an UpdateItem, or of an Update in a transaction, without the table's name."""

    key: Item
    update: str
    condition: str
    values: Item
    names: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """The arguments by the names that boto3 gives them."""
        arguments: dict[str, Any] = {
            "Key": self.key,
            "UpdateExpression": self.update,
            "ConditionExpression": self.condition,
            "ExpressionAttributeValues": self.values,
        }
        return arguments | ({"ExpressionAttributeNames": dict(self.names)} if self.names else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalPut:
    """The arguments of a PutItem, or of a Put in a transaction, without the table's name."""

    item: Item
    condition: str
    values: Item = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """The arguments by the names that boto3 gives them."""
        arguments: dict[str, Any] = {"Item": self.item, "ConditionExpression": self.condition}
        if self.values:
            arguments["ExpressionAttributeValues"] = self.values
        return arguments | ({"ExpressionAttributeNames": dict(self.names)} if self.names else {})


def rewriting(
    item: Item, condition: str, values: Item, *, names: Mapping[str, str] | None = None, optional: Sequence[str] = ()
) -> ConditionalUpdate:
    """Makes the stored item equal to `item`, and leaves the attributes that neither `item` nor `optional` names.

    A later release may have added those (docs/adr/0036): a put would lose them. `optional` are the attributes that
    `item` has at some times only. The update removes those that it lacks now.
    """
    written = {name: value for name, value in item.items() if name not in ("pk", "sk")}
    gone = [name for name in optional if name not in item]
    update = "SET " + ", ".join(f"#new_{name} = :new_{name}" for name in written)
    if gone:
        update += " REMOVE " + ", ".join(f"#new_{name}" for name in gone)
    return ConditionalUpdate(
        key={"pk": item["pk"], "sk": item["sk"]},
        update=update,
        condition=condition,
        values={**{f":new_{name}": value for name, value in written.items()}, **values},
        names={**{f"#new_{name}": name for name in (*written, *gone)}, **(names or {})},
    )


def number(value: int) -> dict[str, str]:
    """The attribute value of a whole number. DynamoDB keeps 38 digits of it."""
    return {"N": str(value)}


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
