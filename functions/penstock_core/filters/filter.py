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

Numbers in headers and policies: decimal text of bounded length, compared exactly.

A header is bytes. It is a number if it has 1 to `FILTER_NUMBER_BYTES_MAX` bytes of ASCII: a sign if it is negative or
positive, digits with at most one point, and at most one exponent. `100`, `1e2` and `100.0` are equal. Text such as
`NaN`, `1_000` or ` 1` is no number. Decimals are exact, so 0.1 is 0.1 here, and no comparison depends on rounding.

The Bloom filter of tags: 64 bits in a ref that tell which values of the header `tag` its records may have.

A filter that needs certain tags skips the refs that have none of them, without a read of their bytes. The bits are
part of the format, for clients in any language make them:

```
h = CRC-32C(value) × 0x9E3779B97F4A7C15 mod 2^64       value: the header's bytes
the value sets the bits (h >> 58), (h >> 52) & 63 and (h >> 46) & 63
```
Records without the header, or with the header but without a value (null), set no bit. The filter of several records or
batches is the OR of theirs. A bit too many only costs a read. A missing bit hides a record from filters by tag.

With one tag in a ref, another tag passes in about 1 of 10,000 cases, with 5 tags in 1 of 100, with 10 in 1 of 18, and
with 20 in 1 of 4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from crc32c import crc32c

from penstock_core.limits import FILTER_HEADERS_MAX, FILTER_NUMBER_BYTES_MAX
from penstock_core.log.ref import Ref

Headers = Sequence[tuple[str, bytes | None]]
_HeaderValues = Mapping[str, Sequence[bytes | None]]
_DIGITS = b"0123456789+-.eE"
_EXPONENT_MAX = 99
TAG_HEADER = "tag"
_MULTIPLIER = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


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


def read_number(text: bytes) -> Decimal | None:
    """The number that the bytes spell, None if they spell none or one of magnitude 1e100 or above. Linear in its 32."""
    if not 1 <= len(text) <= FILTER_NUMBER_BYTES_MAX or text.translate(None, _DIGITS):
        return None
    try:
        number = Decimal(text.decode("ascii"))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) <= _EXPONENT_MAX else None


def tag_mask(value: bytes) -> int:
    """The bits of one tag: one to three of 64."""
    mixed = crc32c(value) * _MULTIPLIER & _WORD
    return 1 << (mixed >> 58) | 1 << (mixed >> 52 & 63) | 1 << (mixed >> 46 & 63)


def tags_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The bits of one record's headers, 0 if it has no tag."""
    mask = 0
    for name, value in headers:
        if name == TAG_HEADER and value is not None:
            mask |= tag_mask(value)
    return mask


def may_match_ref(wanted: Filter, ref: Ref) -> bool:
    """False only if no record of the ref matches. True if its tags are unknown, or the filter needs no certain tag."""
    bits = ref.tag_filter
    if bits is None or wanted.tag_masks is None:
        return True
    return any(bits & mask == mask for mask in wanted.tag_masks)


def needed_tags(policy: AllOf) -> frozenset[bytes] | None:
    """The tags of which a matching record must have one. None if a record without them may match."""
    found = [each.values.texts for each in policy.conditions if each.name == TAG_HEADER and each.is_exact]
    if policy.any_of:
        alternatives = [needed_tags(each) for each in policy.any_of]
        known = [each for each in alternatives if each is not None]
        if len(known) == len(alternatives):
            found.append(frozenset[bytes]().union(*known))
    return min(found, key=len, default=None)


def masks_of(tags: frozenset[bytes] | None) -> Sequence[int] | None:
    """The masks of these tags, ascending."""
    return None if tags is None else sorted(map(tag_mask, tags))
