"""Attribute values in their low-level form, such as `{"N": "1"}`: their normal form, their order, and sums of them.

Stored values are in normal form: a number has one text, the elements of a set are sorted, and bytes are `bytes`. So two
values are equal exactly if their maps are. Nothing changes a stored map or list: a writer makes new ones.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal
from typing import Any

from penstock_service.adapters.dynamodb.driver_errors import AnsweredError

Value = Mapping[str, Any]

NESTING_LEVELS_MAX = 32
NUMBER_DIGITS_MAX = 38
KINDS = frozenset({"S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M"})
SETS = frozenset({"SS", "NS", "BS"})
SORTABLE = frozenset({"S", "N", "B"})
_EXPONENT_MIN, _EXPONENT_MAX = -130, 125
_EMPTY_SETS = {
    "SS": "An string set  may not be empty",
    "NS": "An number set  may not be empty",
    "BS": "Binary sets should not be empty",
}
_EXACT = Context(prec=400)
_is_plain_number = re.compile(r"(?:0|-?[1-9][0-9]{0,37})\Z", re.ASCII).match
_is_number = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\Z", re.ASCII).match


def invalid(message: str) -> AnsweredError:
    """DynamoDB's refusal of a request that is wrong as it is."""
    return AnsweredError("ValidationException", message)


def normal(value: Any, level: int = 0) -> dict[str, Any]:
    """The value in its normal form. Its maps and lists are new, so that the caller may change its own.

    Raises ValidationException for what DynamoDB refuses, and TypeError for what botocore does not send.
    """
    if len(value) != 1:
        raise invalid(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
            if not value
            else "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported "
            "datatypes"
        )
    [(kind, content)] = value.items()
    if kind == "N":
        return value if _is_plain_number(content) else {"N": number_text(content)}
    if kind == "S":
        return value if content.isascii() else {"S": _text(content)}
    if kind == "B":
        return value if type(content) is bytes else {"B": _bytes(content)}
    return _normal_collection(kind, content, level)


def number_text(text: str) -> str:
    """The number in its normal form: no exponent, no zeros that say nothing."""
    if _is_plain_number(text):
        return text
    if not _is_number(text):
        raise invalid(f"The parameter cannot be converted to a numeric value{': ' if text else ''}{text}")
    number = Decimal(text).normalize(_EXACT)
    if number.is_zero():
        return "0"
    if number.adjusted() > _EXPONENT_MAX:
        raise invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
    if number.adjusted() < _EXPONENT_MIN:
        raise invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
    if len(number.as_tuple().digits) > NUMBER_DIGITS_MAX:
        raise invalid("Attempting to store more than 38 significant digits in a Number")
    return f"{number:f}"


def compare(one: Value | None, other: Value | None, operator: Callable[[Any, Any], bool]) -> bool:
    """True if both are of one kind that has an order, and are in this one. `operator` is `operator.lt` or the like.

    Texts are in the order of their UTF-8 bytes, which is that of their code points.
    """
    if one is None or other is None:
        return False
    [(kind, left)], right = one.items(), other.get(next(iter(one)))
    if right is None or kind not in SORTABLE:
        return False
    return operator(_quantity(left), _quantity(right)) if kind == "N" else operator(left, right)


def summed(one: Value, other: Value, sign: int) -> dict[str, Any]:
    """The sum of two numbers, or their difference if `sign` is -1."""
    left, right = _quantity(one["N"]), _quantity(other["N"])
    if type(left) is int and type(right) is int:
        return {"N": number_text(str(left + sign * right))}
    return {"N": number_text(str(_EXACT.add(Decimal(left), _EXACT.multiply(Decimal(sign), Decimal(right)))))}


def element_count(value: Value | None) -> dict[str, Any] | None:
    """The result of `size`. None for a value that has no size."""
    if value is None:
        return None
    [(kind, content)] = value.items()
    if kind in ("N", "BOOL", "NULL"):
        return None
    if kind == "S" and not content.isascii():
        raise NotImplementedError("size of a text beyond ASCII: AWS does not say what it counts")
    return {"N": str(len(content))}


def contains(value: Value | None, part: Value | None) -> bool:
    """True for a text with this part, or a set or list with this element."""
    if value is None or part is None:
        return False
    [(kind, content)], [(part_kind, wanted)] = value.items(), part.items()
    if kind == "L":
        return part in content
    return (kind == part_kind == "S" or (kind in SETS and kind == f"{part_kind}S")) and wanted in content


def begins_with(value: Value | None, prefix: Value | None) -> bool:
    """True for a text or bytes that begin with `prefix`."""
    if value is None or prefix is None:
        return False
    [(kind, content)], wanted = value.items(), prefix.get(next(iter(value)))
    return kind in ("S", "B") and wanted is not None and content.startswith(wanted)


def united(kind: str, one: Iterable[Any], other: Iterable[Any]) -> dict[str, Any]:
    """The set of both sets' elements."""
    return {kind: sorted({*one, *other})}


def _normal_collection(kind: str, content: Any, level: int) -> dict[str, Any]:
    if kind in ("M", "L"):
        if level >= NESTING_LEVELS_MAX:
            raise invalid(
                "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond "
                "supported limit"
            )
        if kind == "L":
            return {"L": [normal(each, level + 1) for each in content]}
        return {"M": {name: normal(each, level + 1) for name, each in content.items()}}
    if kind in SETS:
        return {kind: _normal_set(kind, content)}
    if kind == "BOOL" and isinstance(content, bool):
        return {"BOOL": content}
    if kind == "NULL" and isinstance(content, bool):
        if not content:
            raise invalid(
                "One or more parameter values were invalid: Null attribute value types must have the value of true"
            )
        return {"NULL": True}
    raise TypeError(f"no attribute value: {kind!r}: {content!r:.100}")


def _normal_set(kind: str, content: Iterable[Any]) -> list[Any]:
    normalize: Callable[[Any], Any] = {"SS": _text, "NS": number_text, "BS": _bytes}[kind]
    elements = sorted(map(normalize, content))
    if not elements:
        raise invalid(f"One or more parameter values were invalid: {_EMPTY_SETS[kind]}")
    if len({*elements}) < len(elements):
        raise invalid(f"One or more parameter values were invalid: Input collection {elements} contains duplicates.")
    return elements


def _text(content: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in content):
        raise AnsweredError("SerializationException", "a text with half a surrogate pair has no UTF-8")
    return content


def _bytes(content: object) -> bytes:
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"{type(content).__name__} is no binary value")
    return bytes(content)


def _quantity(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)
