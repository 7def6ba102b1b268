"""What a filter policy means, said once more: naive, slow, with fractions and regular expressions."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

Headers = Sequence[tuple[str, bytes | None]]
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)


def is_match(policy: Mapping[str, Any], headers: Headers) -> bool:
    for name, given in policy.items():
        if name == "$or":
            if not any(is_match(each, headers) for each in given):
                return False
        elif not any(_is_met(value, [found for each, found in headers if each == name]) for value in given):
            return False
    return True


def number_of(value: bytes) -> Fraction | None:
    if len(value) > 32 or not _NUMBER.match(value):
        return None
    digits, _, exponent = value.decode().lower().partition("e")
    if abs(int(exponent or 0)) > 150:
        return None
    number = Fraction(digits if digits[-1] != "." else digits[:-1]) * Fraction(10) ** int(exponent or 0)
    return number if number == 0 or Fraction(1, 10**99) <= abs(number) < 10**100 else None


def _is_met(value: Any, found: Sequence[bytes | None]) -> bool:
    if value == {"exists": True}:
        return len(found) > 0
    if value == {"exists": False}:
        return len(found) == 0
    return any(_is_equal(value, each) for each in found)


def _is_equal(value: Any, found: bytes | None) -> bool:
    if found is None or value is None:
        return found is value
    if isinstance(value, bool):
        return found == str(value).lower().encode()
    if isinstance(value, str):
        return found == value.encode()
    if isinstance(value, int | float):
        return number_of(found) == Fraction(str(value))
    [[operator, operand]] = value.items()
    return _is_met_by(operator, operand, found)


def _is_met_by(operator: str, operand: Any, found: bytes) -> bool:
    text = operand.encode() if isinstance(operand, str) else b""
    match operator:
        case "prefix":
            return found[: len(text)] == text
        case "suffix":
            return found[::-1][: len(text)] == text[::-1]
        case "equals-ignore-case":
            decoded = found.decode(errors="replace")
            return decoded.encode() == found and decoded.casefold() == text.decode().casefold()
        case "anything-but":
            listed = operand if isinstance(operand, list) else [operand]
            return not any(_is_equal(each, found) for each in listed)
        case "numeric":
            number = number_of(found)
            return number is not None and all(
                _compare(number, operand[index], Fraction(str(operand[index + 1])))
                for index in range(0, len(operand), 2)
            )
    raise AssertionError(operator)


def _compare(number: Fraction, comparison: str, bound: Fraction) -> bool:
    return {
        "=": number == bound,
        "<": number < bound,
        "<=": number <= bound,
        ">": number > bound,
        ">=": number >= bound,
    }[comparison]


# Few names, texts and numbers, so that policies and headers meet.
NAMES = st.sampled_from(["tag", "type", "amount"])
TEXTS = st.sampled_from(["", "a", "ab", "Ab", "b", "ß", "SS", "1", "100", "1e2", "true", "-5", "0.1", "order"])
NUMBERS = st.sampled_from([0, 1, 100, -5, 0.1, 1e2, 100.5, -0.0])
_PARTS = TEXTS.filter(bool)
_RANGES = st.one_of(
    st.tuples(st.sampled_from(["=", "<", "<=", ">", ">="]), NUMBERS).map(list),
    st.tuples(st.sampled_from([">", ">="]), st.integers(-6, 1), st.sampled_from(["<", "<="]), st.integers(2, 101)).map(
        list
    ),
)
_ENDS = st.one_of(st.builds(lambda text: {"prefix": text}, _PARTS), st.builds(lambda text: {"suffix": text}, _PARTS))
_VALUES = st.one_of(
    TEXTS,
    NUMBERS,
    st.booleans(),
    st.none(),
    _ENDS,
    st.builds(lambda text: {"equals-ignore-case": text}, TEXTS),
    st.builds(lambda flag: {"exists": flag}, st.booleans()),
    st.builds(lambda given: {"numeric": given}, _RANGES),
    st.builds(
        lambda given: {"anything-but": given},
        st.one_of(TEXTS, NUMBERS, st.lists(TEXTS | NUMBERS, min_size=1, max_size=3), _ENDS),
    ),
)
_FLAT = st.dictionaries(NAMES, st.lists(_VALUES, min_size=1, max_size=3), min_size=1, max_size=3)
_WITH_OR = st.builds(
    lambda flat, alternatives: {**flat, "$or": alternatives}, _FLAT, st.lists(_FLAT, min_size=2, max_size=3)
)
POLICIES = st.one_of(_FLAT, _WITH_OR, st.builds(lambda each: {"$or": [each, {"tag": ["a"]}]}, _WITH_OR))
HEADER_VALUES = st.one_of(
    TEXTS.map(str.encode), st.none(), st.binary(max_size=3), st.just(b"1.00e+02"), st.just(b"1_0")
)
HEADERS = st.lists(st.tuples(NAMES, HEADER_VALUES), max_size=5)
