import math

import pytest

from penstock import prices
from penstock_core.ids import new_segment_id
from penstock_core.limits import EXPIRING_MARGIN_DAYS, INLINE_BYTES_MAX, KIB, RETENTION_MS_DEFAULT
from penstock_core.log.inline import (
    BOUNDS_OF_PROFILES,
    ITEM_OVERHEAD_BYTES,
    NO_ITEMS,
    InlineBounds,
    bounds_of_units,
    parse_inline_bounds,
)
from penstock_core.log.segment import segment_bytes
from penstock_core.storage.item import item_bytes
from penstock_core.storage.page_item import expiring_item, inline_item

_SEGMENT = new_segment_id(1_760_000_000_000, bytes(range(10)))
_PUTS = {
    "express3": prices.EXPRESS_PUTS.of(3_000_000),
    "express2": prices.EXPRESS_PUTS.of(2_000_000),
    "standard1": prices.S3_PUTS.of(1_000_000),
}
_DAYS = RETENTION_MS_DEFAULT / 86_400_000 + EXPIRING_MARGIN_DAYS
_MOVED_USD = 0.30  # a million of moves to the archive, shared by 128 (bench.inline_appends)
_UNITS_MAX = INLINE_BYTES_MAX // KIB + 1
_BATCH_OF_A_RECORD_BYTES = 61 + 10  # next to its value


def _expiring_usd(units: int) -> float:
    """A million items: their put, their days and one reader. DynamoDB removes them for nothing."""
    stored = prices.TABLE_GB_MONTHS.of(units * KIB * 1_000_000 / prices.GB * _DAYS / prices.DAYS_PER_MONTH)
    read = prices.READ_UNITS.of(1_000_000 * math.ceil(units / 4))
    return prices.WRITE_UNITS.of(1_000_000 * units) + stored + read


def _swept_usd(units: int) -> float:
    """A million items: their put, their deletion, their move and one reader."""
    return prices.WRITE_UNITS.of(2_000_000 * units) + _MOVED_USD + prices.READ_UNITS.of(1_000_000)


@pytest.mark.parametrize("profile", _PUTS)
def test_bounds_are_the_largest_items_that_cost_less_than_their_puts(profile: str) -> None:
    units = range(1, _UNITS_MAX + 1)
    expiring = max(each for each in units if _expiring_usd(each) < _PUTS[profile])
    swept = max((each for each in units if _swept_usd(each) < _PUTS[profile]), default=0)
    assert BOUNDS_OF_PROFILES[profile] == bounds_of_units(expiring, 0 if profile == "standard1" else swept)


@pytest.mark.parametrize(
    ("profile", "expiring", "swept"), [("express3", 2_880, 1_855), ("express2", 1_855, 830), ("standard1", 4_930, None)]
)
def test_bounds_take_a_record_of_so_many_bytes(profile: str, expiring: int, swept: int | None) -> None:
    bounds = BOUNDS_OF_PROFILES[profile]
    for record, bound in ((expiring, bounds.expiring_bytes), (swept, bounds.swept_bytes)):
        if record is None:
            assert bound == 0
        else:
            assert bound - 30 < segment_bytes(1, record + _BATCH_OF_A_RECORD_BYTES) <= bound


def test_items_of_the_bound_fill_their_units() -> None:
    body = bytes(3 * KIB - ITEM_OVERHEAD_BYTES)
    for item in (expiring_item(_SEGMENT, body, 30), inline_item(_SEGMENT, body)):
        assert 3 * KIB - 10 < item_bytes(item) <= 3 * KIB


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        (None, NO_ITEMS),
        ("", NO_ITEMS),
        ("0", NO_ITEMS),
        ("960", InlineBounds(swept_bytes=960)),
        ("960,960", InlineBounds.of_both(960)),
        ("3012,1988", BOUNDS_OF_PROFILES["express3"]),
        (str(INLINE_BYTES_MAX), InlineBounds(swept_bytes=INLINE_BYTES_MAX)),
    ],
)
def test_bounds_are_the_numbers_of_the_variable(text: str | None, bounds: InlineBounds) -> None:
    assert parse_inline_bounds(text) == bounds
    assert parse_inline_bounds(str(bounds)) == bounds


@pytest.mark.parametrize("text", [str(INLINE_BYTES_MAX + 1), "-1", "1e3", "many", "\u0663", "1,2,3", "1,", "9" * 5_000])
def test_bounds_are_refused_when_they_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=f"give 0 to {INLINE_BYTES_MAX} bytes"):
        parse_inline_bounds(text)
