"""The size of a DynamoDB item in bytes, as DynamoDB counts it for capacity.

Source: docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html: names and values in
UTF-8, 1 byte for a boolean or null, about half a byte a digit plus 1 for a number, 3 bytes for a list or map plus 1 for
each element.
"""

import base64
import math
from collections.abc import Mapping
from typing import Any

_WRITE_UNIT_BYTES = 1024
_READ_UNIT_BYTES = 4096


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
