"""Checks of the fields of binary requests, written by hand: their functions do without pydantic and its import."""

from collections.abc import Mapping
from typing import Any, TypeVar

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import OFFSET_MAX

T = TypeVar("T", int, str, list[Any], dict[str, Any])
_KINDS: Mapping[type, str] = {int: "a whole number", str: "text", list: "an array", dict: "an object"}


def take(fields: Mapping[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """`fields[name]`, or `default` if it is missing. Raises INVALID_REQUEST that names the field and the value."""
    value = fields.get(name, default)
    if value is None:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name!r} is missing: it must be {_KINDS[kind]}")
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name}={shown(value)}: must be {_KINDS[kind]}")
    return value


def take_number(fields: Mapping[str, Any], name: str, low: int, high: int, default: int | None = None) -> int:
    """A whole number from `low` to `high`. Raises INVALID_REQUEST that names the field, the value and the bounds."""
    value = take(fields, name, int, default)
    if not low <= value <= high:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name}={shown(value)}: must be from {low} to {high}")
    return value


def take_flag(fields: Mapping[str, Any], name: str) -> bool:
    """True or false, and false if it is missing. Raises INVALID_REQUEST that names the field and the value."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name}={shown(value)}: must be true or false")
    return value


def take_objects(fields: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """An array of objects. Raises INVALID_REQUEST that names the first element that is no object."""
    values = take(fields, name, list)
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name}[{index}]={shown(value)}: must be an object")
    return values


def whole_number(text: str) -> int | None:
    """The number from 0 to `OFFSET_MAX` that a parameter or a name spells in ASCII digits, or None."""
    is_short = len(text) <= len(str(OFFSET_MAX))  # before int(), which refuses thousands of digits with ValueError
    number = int(text) if is_short and text.isascii() and text.isdigit() else None
    return number if number is not None and number <= OFFSET_MAX else None


def partition_number(name: str) -> int:
    """The partition that a field's name spells. Raises INVALID_REQUEST, also for "00" in place of "0"."""
    number = whole_number(name)
    if number is None or name != str(number):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{shown(name)} is not a partition number: use 0, 1, 2, ...")
    return number


def refuse_unknown(fields: Mapping[str, Any], *known: str) -> None:
    """Raises INVALID_REQUEST for a field that is not in `known`: a typo must not act as the default."""
    for name in fields:
        if name not in known:
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"unknown field {shown(name)}: known are {', '.join(known)}")
