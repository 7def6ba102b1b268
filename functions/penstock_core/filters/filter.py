"""The compiled filter, and how it matches the headers of a record.

It is data: a tree of conditions, one per header name and alternative.

```
AllOf   every condition holds, and one of `any_of` if there are any
 ├─ conditions   Condition(name) ∨ over its values: a header of that name has a value that one of them takes
 └─ any_of       AllOf, AllOf, …   the alternatives of `$or`
```
A condition holds if any header of its name matches any of its values. Text is compared as UTF-8 bytes, so a header that
is not UTF-8 equals no text. A header without a value (null) matches `null` and `exists`, and no other value.

Time: a match sorts the first `FILTER_HEADERS_MAX` headers of a record by name, once. A condition compares each value of
its name with at most `FILTER_VALUES_MAX` values of the policy, each by one pass over bytes. There are no regular
expressions and no wildcards, so nothing goes back. So a match takes time linear in the bytes of the headers, whatever
they are, with a factor that the policy's bounds limit. Headers behind the first ones count as missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from penstock_core.filters.numbers import read_number
from penstock_core.limits import FILTER_HEADERS_MAX

Headers = Sequence[tuple[str, bytes | None]]
_HeaderValues = Mapping[str, Sequence[bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRange:
    """Numbers between two bounds, each of which may be missing, and may belong to the range or not."""

    low: Decimal | None = None
    high: Decimal | None = None
    has_low: bool = False
    has_high: bool = False

    def takes(self, number: Decimal) -> bool:
        """True if the number lies in the range."""
        is_above = self.low is None or number > self.low or (self.has_low and number == self.low)
        is_below = self.high is None or number < self.high or (self.has_high and number == self.high)
        return is_above and is_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Values that a header may have, of every kind that compares text or numbers."""

    texts: frozenset[bytes] = frozenset()
    numbers: frozenset[Decimal] = frozenset()
    prefixes: tuple[bytes, ...] = ()
    suffixes: tuple[bytes, ...] = ()

    def takes(self, value: bytes, number: Decimal | None) -> bool:
        """True if the value equals one of the texts, begins or ends as one of the others, or is one of the numbers."""
        if value in self.texts or value.startswith(self.prefixes) or value.endswith(self.suffixes):
            return True
        return number is not None and number in self.numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What one header of a policy asks for. It holds if one of its parts does.

    `caseless` has texts after `str.casefold`. Each of `all_but` takes every value that its own values do not take.
    """

    name: str
    values: Values = Values()
    caseless: frozenset[str] = frozenset()
    ranges: tuple[NumberRange, ...] = ()
    all_but: tuple[Values, ...] = ()
    takes_null: bool = False
    takes_present: bool = False
    takes_absent: bool = False
    has_numbers: bool = field(init=False)

    def __post_init__(self) -> None:
        all_values = (self.values, *self.all_but)
        object.__setattr__(self, "has_numbers", bool(self.ranges) or any(each.numbers for each in all_values))

    @property
    def is_exact(self) -> bool:
        """True if only the texts of `values` match, so the values that match can be listed."""
        return self == Condition(name=self.name, values=Values(texts=self.values.texts))

    def holds(self, found: _HeaderValues) -> bool:
        """True if the values of a record's headers, by name, meet the condition."""
        values = found.get(self.name)
        if values is None:
            return self.takes_absent
        return self.takes_present or any(map(self._takes, values))

    def _takes(self, value: bytes | None) -> bool:
        if value is None:
            return self.takes_null
        number = read_number(value) if self.has_numbers else None
        if self.values.takes(value, number) or any(not each.takes(value, number) for each in self.all_but):
            return True
        if self.caseless and _casefolded(value) in self.caseless:
            return True
        return number is not None and any(each.takes(number) for each in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """All conditions, and one of the alternatives if there are any."""

    conditions: tuple[Condition, ...] = ()
    any_of: tuple["AllOf", ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The headers that it asks for."""
        own = (each.name for each in self.conditions)
        return frozenset(own).union(*(each.names for each in self.any_of))

    def holds(self, found: _HeaderValues) -> bool:
        """True if the values of a record's headers, by name, meet all of it."""
        for condition in self.conditions:
            if not condition.holds(found):
                return False
        return not self.any_of or any(each.holds(found) for each in self.any_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A policy, parsed and compiled by `parse_filter`.

    `text` is the policy as JSON, from which `parse_filter` makes an equal filter. `tag_masks` are the bits that a ref's
    tag filter has if the ref has a record that matches: one mask for each tag that the policy allows. None means that a
    record without a tag, or with any tag, may match.
    """

    text: str
    root: AllOf
    names: frozenset[str]
    tag_masks: tuple[int, ...] | None


def matches(wanted: Filter, headers: Headers) -> bool:
    """True if a record with these headers, by name and value, matches. Pure, and bounded as the module tells."""
    found: dict[str, list[bytes | None]] = {}
    for name, value in headers if len(headers) <= FILTER_HEADERS_MAX else headers[:FILTER_HEADERS_MAX]:
        if name in wanted.names:
            found.setdefault(name, []).append(value)
    return wanted.root.holds(found)


def _casefolded(value: bytes) -> str | None:
    try:
        return value.decode().casefold()
    except UnicodeDecodeError:
        return None
