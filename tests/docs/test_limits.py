"""docs/reference/limits.md lists every limit of `penstock_core.limits`, by its name and with its value."""

import re
from pathlib import Path

from penstock_core import limits

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
UNITS_OF_NO_LIMIT = {"KIB", "MIB"}
NAMES = [name for name in vars(limits) if name.isupper() and name not in UNITS_OF_NO_LIMIT]

_SECOND_MS = 1_000
_TIMES_MS = {
    "ms": 1,
    "s": _SECOND_MS,
    "minute": 60 * _SECOND_MS,
    "hour": 3_600 * _SECOND_MS,
    "day": 24 * 3_600 * _SECOND_MS,
    "year": 365 * 24 * 3_600 * _SECOND_MS,
}
_SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "PiB": 2**50}


def _quantities(text: str) -> set[float]:
    """Every number in `text`, times its unit if it has one: bytes for sizes, milliseconds for times."""
    found = re.findall(r"(-?\d[\d,]*(?:\.\d+)?)(?: ([A-Za-z]+))?", text)
    units = {**_SIZES, **_TIMES_MS, **{f"{unit}s": ms for unit, ms in _TIMES_MS.items()}}
    return {float(number.replace(",", "")) * units.get(unit, 1) for number, unit in found}


def _told(line: str, name: str) -> str:
    """What the line says of this limit. A line of the section "Inside" has many: `NAME` value; `NAME` value."""
    parts = re.split(r"; (?=`[A-Z])", line)
    return next(part for part in parts if f"`{name}`" in part) if len(parts) > 1 else line


def test_page_has_each_limit_with_its_value() -> None:
    page = PAGE.read_text().splitlines()
    for name in NAMES:
        lines = [line for line in page if f"`{name}`" in line]
        assert lines, f"{PAGE.name} does not list {name}: add a row for it"
        value = float(getattr(limits, name))
        told = any(value in _quantities(_told(line, name)) for line in lines)
        assert told, f"{name} is {value:,.0f}; the page says {lines}"


def test_page_names_no_limit_that_does_not_exist() -> None:
    listed = set(re.findall(r"`([A-Z][A-Z_]+)`", PAGE.read_text()))
    elsewhere = {name for name in listed if name.startswith("PENSTOCK_")}
    assert listed - elsewhere <= set(NAMES)
