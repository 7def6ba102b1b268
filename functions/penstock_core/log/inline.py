"""The bounds on segments that become items of the log table, as a stage sets them (docs/adr/0064).

A request is small if its item costs less than its puts. DynamoDB bills whole units of 1 KB, so the bounds are units:

| profile     | puts, a million | expiring item, with 23 days and one reader | inline item, with its deletion |
|-------------|-----------------|--------------------------------------------|--------------------------------|
| `express3`  | $3.39           | 3 units: $2.59; 4 units: $3.41             | 2 units: $2.63                 |
| `express2`  | $2.26           | 2 units: $1.77; 3 units: $2.59             | 1 unit: $1.38                  |
| `standard1` | $5.00           | 5 units: $4.36; 6 units: $5.18             | none: no `tier` moves it       |

`tests/core/log/test_inline.py` holds them against the price table. The stage `local` pays for neither. The servers in
one process (`penstock dev`, `penstock.testing`) have three zones in memory, and the bounds of `express3`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_core.limits import INLINE_BYTES_MAX, KIB

VARIABLE = "PENSTOCK_INLINE_BYTES_MAX"
ITEM_OVERHEAD_BYTES = 60  # of keys, names and TTL next to the segment: 54 at most


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineBounds:
    """The bytes of the largest segment that becomes an item: an expiring one, or one that the sweep removes."""

    expiring_bytes: int = 0
    swept_bytes: int = 0

    @classmethod
    def of_both(cls, bytes_max: int) -> "InlineBounds":
        """The same bound for both."""
        return cls(expiring_bytes=bytes_max, swept_bytes=bytes_max)

    def __str__(self) -> str:
        """The bounds as a variable of the environment has them."""
        if not self.expiring_bytes:
            return str(self.swept_bytes)
        return f"{self.expiring_bytes},{self.swept_bytes}"


def bounds_of_units(expiring: int, swept: int) -> InlineBounds:
    """The bounds at which an item has so many write units."""
    return InlineBounds(
        expiring_bytes=expiring * KIB - ITEM_OVERHEAD_BYTES if expiring else 0,
        swept_bytes=swept * KIB - ITEM_OVERHEAD_BYTES if swept else 0,
    )


NO_ITEMS = InlineBounds()
BOUNDS_OF_PROFILES: Mapping[str, InlineBounds] = {
    "express3": bounds_of_units(3, 2),
    "express2": bounds_of_units(2, 1),
    "standard1": bounds_of_units(5, 0),
    "local": NO_ITEMS,
}


def bounds_of_setting(bytes_max: int | None, profile: str = "express3") -> InlineBounds:
    """The bounds of a stage with this `inline_bytes_max`: None, the default, for those of its profile.

    Raises ValueError beyond 0 to `INLINE_BYTES_MAX`.
    """
    if bytes_max is None:
        return BOUNDS_OF_PROFILES[profile]
    if not 0 <= bytes_max <= INLINE_BYTES_MAX:
        raise ValueError(f"inline_bytes_max={bytes_max}: give 0 to {INLINE_BYTES_MAX} bytes, or auto")
    return InlineBounds(swept_bytes=bytes_max)


def parse_inline_bounds(text: str | None) -> InlineBounds:
    """The bounds of `<expiring>,<swept>`, or of one number for swept items alone; no items for no text.

    Release 0.1.0 reads no refs of expiring items. So a number, which it knows, means what it means there.
    Raises ValueError beyond 0 to `INLINE_BYTES_MAX`.
    """
    if not text:
        return NO_ITEMS
    numbers = text.split(",")
    if len(numbers) > 2 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise _refused(text)
    expiring = numbers[0] if len(numbers) == 2 else "0"
    found = InlineBounds(expiring_bytes=int(expiring[:9]), swept_bytes=int(numbers[-1][:9]))
    if max(found.expiring_bytes, found.swept_bytes) > INLINE_BYTES_MAX:
        raise _refused(text)
    return found


def _refused(text: str) -> ValueError:
    return ValueError(f"{VARIABLE}={text!r:.100}: give 0 to {INLINE_BYTES_MAX} bytes, 0 to put none there")
