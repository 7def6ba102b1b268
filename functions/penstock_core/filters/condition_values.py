"""The values of one header in a policy, as they are parsed: plain ones, and those with an operator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.filters.filter import Condition, NumberRange, Values, read_number
from penstock_core.limits import FILTER_NUMBER_BYTES_MAX, FILTER_VALUES_MAX

_NUMBERS = f"a number has {FILTER_NUMBER_BYTES_MAX} characters at most and is below 1e100"
_COMPARISONS = ("=", "<", "<=", ">", ">=")
_NUMERIC = 'give a comparison such as [">", 100], or a range such as [">=", 0, "<", 100]'


def invalid(place: str, given: object, way_out: str) -> PenstockError:
    """The error of a policy, with the place, the value and the way out."""
    where = f" at {place}" if place else ""
    return PenstockError(ErrorCode.INVALID_FILTER, f"filter{where}: {shown(given)}: {way_out}", place=place)


def as_text(given: Any, place: str, way_out: str) -> bytes:
    """The text in UTF-8. Raises INVALID_FILTER if it is none."""
    if not isinstance(given, str):
        raise invalid(place, given, way_out)
    try:
        return given.encode()
    except UnicodeEncodeError as error:
        raise invalid(place, given, "it holds half of a surrogate pair: give Unicode text") from error


def as_number(given: Any, place: str, way_out: str = _NUMBERS) -> Decimal:
    """The number, exactly as its shortest text says. Raises INVALID_FILTER if it is none, or beyond the bounds."""
    is_number = isinstance(given, int | float | Decimal) and not isinstance(given, bool)
    is_huge = isinstance(given, int) and given.bit_length() > 8 * FILTER_NUMBER_BYTES_MAX
    number = read_number(str(given).encode()) if is_number and not is_huge else None
    if number is None:
        raise invalid(place, given, way_out if not is_number else _NUMBERS)
    return number


@dataclass(slots=True, kw_only=True)
class ConditionParts:
    """The parts of one header's condition, gathered value by value."""

    texts: list[bytes] = field(default_factory=list)
    numbers: list[Decimal] = field(default_factory=list)
    prefixes: list[bytes] = field(default_factory=list)
    suffixes: list[bytes] = field(default_factory=list)
    caseless: list[str] = field(default_factory=list)
    ranges: list[NumberRange] = field(default_factory=list)
    all_but: list[Values] = field(default_factory=list)
    takes_null: bool = False
    takes_present: bool = False
    takes_absent: bool = False

    def add_operator(self, given: Mapping[str, Any], place: str) -> Sequence[object]:
        """Add the value with the operator `given`, an object with one name. Returns the values inside of it."""
        operator, value = next(iter(given.items()), (None, None))
        add = _OPERATORS.get(operator) if isinstance(operator, str) and len(given) == 1 else None
        if add is None:
            raise invalid(place, dict(given), f"give an object with one operator: {', '.join(sorted(_OPERATORS))}")
        add(self, value, f"{place}.{operator}")
        return value if isinstance(value, list | tuple) else (value,)

    def condition(self, name: str) -> Condition:
        """The condition on the header `name`."""
        return Condition(
            name=name,
            values=Values(
                texts=frozenset(self.texts),
                numbers=frozenset(self.numbers),
                prefixes=tuple(self.prefixes),
                suffixes=tuple(self.suffixes),
            ),
            caseless=frozenset(self.caseless),
            ranges=tuple(dict.fromkeys(self.ranges)),
            all_but=tuple(dict.fromkeys(self.all_but)),
            takes_null=self.takes_null,
            takes_present=self.takes_present,
            takes_absent=self.takes_absent,
        )


def _add_prefix(parts: ConditionParts, given: Any, place: str) -> None:
    parts.prefixes.append(_part_of_text(given, place))


def _add_suffix(parts: ConditionParts, given: Any, place: str) -> None:
    parts.suffixes.append(_part_of_text(given, place))


def _add_caseless(parts: ConditionParts, given: Any, place: str) -> None:
    parts.caseless.append(as_text(given, place, "give text").decode().casefold())


def _add_exists(parts: ConditionParts, given: Any, place: str) -> None:
    if not isinstance(given, bool):
        raise invalid(place, given, "give true or false")
    parts.takes_present |= given
    parts.takes_absent |= not given


def _add_numeric(parts: ConditionParts, given: Any, place: str) -> None:
    if not isinstance(given, list | tuple) or len(given) not in (2, 4):
        raise invalid(place, given, _NUMERIC)
    bounds: dict[str, Any] = {}
    for index in range(0, len(given), 2):
        comparison = given[index]
        if comparison not in _COMPARISONS:
            raise invalid(f"{place}[{index}]", comparison, f"a comparison is one of {', '.join(_COMPARISONS)}")
        number = as_number(given[index + 1], f"{place}[{index + 1}]", "a comparison is followed by a number")
        ends = {"=": ("low", "high"), "<": ("high",), "<=": ("high",), ">": ("low",), ">=": ("low",)}[comparison]
        for end in ends:
            if end in bounds:
                raise invalid(f"{place}[{index}]", comparison, "a range has one lower and one upper bound")
            bounds |= {end: number, f"has_{end}": comparison[-1] == "="}
    found = NumberRange(**bounds)
    if found.low is not None and found.high is not None and not (found.low < found.high or found.takes(found.low)):
        raise invalid(place, given, "no number lies in it: put the lower bound first and the upper one second")
    parts.ranges.append(found)


def _add_all_but(parts: ConditionParts, given: Any, place: str) -> None:
    if isinstance(given, Mapping):
        [operator] = given if len(given) == 1 else [None]
        if operator not in ("prefix", "suffix"):
            raise invalid(place, dict(given), "anything-but takes text, a number, a list of these, prefix or suffix")
        end = (_part_of_text(given[operator], f"{place}.{operator}"),)
        parts.all_but.append(Values(prefixes=end) if operator == "prefix" else Values(suffixes=end))
        return
    is_list = isinstance(given, list | tuple)
    values = given if is_list else (given,)
    if not values or len(values) > FILTER_VALUES_MAX:
        raise invalid(place, given, f"give 1 to {FILTER_VALUES_MAX} values")
    texts, numbers = [], []
    for index, value in enumerate(values):
        where = f"{place}[{index}]" if is_list else place
        if isinstance(value, str):
            texts.append(as_text(value, where, ""))
        else:
            way_out = "anything-but takes text, a number, a list of these, prefix or suffix"
            numbers.append(as_number(value, where, way_out))
    parts.all_but.append(Values(texts=frozenset(texts), numbers=frozenset(numbers)))


def _part_of_text(given: Any, place: str) -> bytes:
    text = as_text(given, place, "give text")
    if not text:
        raise invalid(place, given, 'it is empty: give text, or {"exists": true} for any value')
    return text


_OPERATORS: Mapping[str, Callable[[ConditionParts, Any, str], None]] = {
    "prefix": _add_prefix,
    "suffix": _add_suffix,
    "equals-ignore-case": _add_caseless,
    "exists": _add_exists,
    "numeric": _add_numeric,
    "anything-but": _add_all_but,
}
