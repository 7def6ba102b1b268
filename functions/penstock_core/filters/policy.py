"""Parses an SNS filter policy into a filter. Every error tells its place, the value, and what would be right.

The grammar is that of https://docs.aws.amazon.com/sns/latest/dg/sns-subscription-filter-policies.html over headers:

```
policy     {header: [value, …], …, "$or": [policy, policy, …]}      all of these; one of the alternatives
value      text | number | true | false | null
           {"prefix": text} | {"suffix": text} | {"equals-ignore-case": text} | {"exists": true | false}
           {"numeric": ["=", n]} | {"numeric": [">", n, "<=", n]} | …
           {"anything-but": text | number | [text | number, …] | {"prefix": text} | {"suffix": text}}
```
docs/adr/0038 lists where it differs from SNS.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.filters.condition_values import ConditionParts, as_number, as_text, invalid
from penstock_core.filters.filter import AllOf, Condition, Filter, masks_of, needed_tags, read_number
from penstock_core.text import parse_json, why_no_json

_OR = "$or"
_VALUES = "text, a number, true, false, null, or an object with one operator"


def parse_filter(policy: str | Mapping[str, Any]) -> Filter:
    """The filter of a policy, which is JSON text or the object that it holds.

    Raises INVALID_FILTER, with the place in the policy as `facts["place"]`, such as `amount[0].numeric[1]`. The place
    is "" if it is the whole policy. Numbers in text are exact. In an object they are as exact as its floats.
    """
    if not isinstance(policy, str):
        root = _Parser().policy(policy, "", 0)
        text = _json_of(policy)
        _check_size(text)
    else:
        text = policy.strip()
        _check_size(text)
        try:
            parsed = parse_json(text, _exact)
        except ValueError as error:
            raise invalid("", text, f"it is not JSON: {why_no_json(error)}") from error
        root = _Parser().policy(parsed, "", 0)
    masks = masks_of(needed_tags(root))
    return Filter(text=text, root=root, names=root.names, tag_masks=None if masks is None else tuple(masks))


def _json_of(value: Any) -> str:
    """A parsed policy, or a part of it, as JSON."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_json_of(name)}:{_json_of(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_json_of, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise invalid("", text, "it holds half of a surrogate pair: give Unicode text") from error
    if size > limits.FILTER_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_FILTER,
            f"a filter of {size} bytes: at most {limits.FILTER_BYTES_MAX} are allowed",
            place="",
            limit=limits.FILTER_BYTES_MAX,
        )


class _Exact(Decimal):
    """A number that an error shows as the policy has it."""

    __repr__ = Decimal.__str__


def _exact(text: str) -> Decimal:
    number = read_number(text.encode())
    if number is None:
        raise ValueError(
            f"{shown(text)} is a number of more than {limits.FILTER_NUMBER_BYTES_MAX} characters, or of 1e100 or above"
        )
    return _Exact(number)


@dataclass(slots=True)
class _Parser:
    """One policy's parsing. It counts what the limits bound, so an object of any size costs only what they allow."""

    keys: int = 0
    values: int = 0

    def policy(self, given: Any, place: str, depth: int) -> AllOf:
        """The policy at `place`, inside of `depth` alternatives."""
        if not isinstance(given, Mapping):
            raise invalid(place, given, 'a policy is an object such as {"type": ["order"]}')
        if not given:
            raise invalid(place, given, "it names no header: leave the filter out to get all records")
        conditions: list[Condition] = []
        any_of: tuple[AllOf, ...] = ()
        for name, value in given.items():
            where = f"{place}.{_named(name)}" if place else _named(name)
            if name == _OR:
                any_of = self._alternatives(value, where, depth + 1)
            else:
                conditions.append(self._condition(name, value, where))
        return AllOf(conditions=tuple(conditions), any_of=any_of)

    def _alternatives(self, given: Any, place: str, depth: int) -> tuple[AllOf, ...]:
        if depth > limits.FILTER_NESTING_MAX:
            raise invalid(place, given, f"$or may stand inside $or {limits.FILTER_NESTING_MAX} deep at most")
        if not isinstance(given, list | tuple) or len(given) < 2:
            raise invalid(place, given, "$or takes a list of two policies or more")
        return tuple(self.policy(each, f"{place}[{index}]", depth) for index, each in enumerate(given))

    def _condition(self, name: Any, given: Any, place: str) -> Condition:
        as_text(name, place, "the name of a header is text")
        self.keys += 1
        if self.keys > limits.FILTER_KEYS_MAX:
            raise invalid(place, given, f"a filter has {limits.FILTER_KEYS_MAX} conditions on headers at most")
        if isinstance(given, Mapping):
            raise invalid(place, given, "headers are not nested: give a list of values")
        if not isinstance(given, list | tuple) or not given:
            raise invalid(place, given, "give a list of one value or more")
        parts = ConditionParts()
        for index, value in enumerate(given):
            self._add_value(parts, value, f"{place}[{index}]")
        return parts.condition(name)

    def _add_value(self, parts: ConditionParts, given: Any, place: str) -> None:
        if isinstance(given, Mapping):
            self._count(len(parts.add_operator(given, place)), given, place)
            return
        self._count(1, given, place)
        if given is None:
            parts.takes_null = True
        elif isinstance(given, bool):
            parts.texts.append(b"true" if given else b"false")
        elif isinstance(given, str):
            parts.texts.append(as_text(given, place, _VALUES))
        elif isinstance(given, int | float | Decimal):
            parts.numbers.append(as_number(given, place))
        else:
            raise invalid(place, given, f"a value is {_VALUES}")

    def _count(self, values: int, given: Any, place: str) -> None:
        self.values += values
        if self.values > limits.FILTER_VALUES_MAX:
            raise invalid(place, given, f"a filter has {limits.FILTER_VALUES_MAX} values at most")


def _named(name: Any) -> str:
    """A header's name as a place shows it: as it is if it is short and plain."""
    is_plain = isinstance(name, str) and len(name) <= 60 and name.isprintable() and not set(name) & set(" .[]\"'")
    return str(name) if is_plain else shown(name)
