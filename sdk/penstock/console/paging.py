"""A long list in pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.console.page import Asked
from penstock_core.limits import CONSOLE_ROWS_MAX

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged(Generic[Row]):
    """The rows of one page. `number` counts pages from 1. The URLs lead to its neighbours, None at the ends."""

    rows: Sequence[Row]
    total: int
    number: int
    pages: int
    previous_url: str | None
    next_url: str | None

    @property
    def first(self) -> int:
        """The number of the first row, from 1; 0 without rows."""
        return 0 if not self.rows else (self.number - 1) * CONSOLE_ROWS_MAX + 1

    @property
    def last(self) -> int:
        """The number of the last row."""
        return 0 if not self.rows else self.first + len(self.rows) - 1


def paged(rows: Sequence[Row], asked: Asked, *, name: str = "page") -> Paged[Row]:
    """The page that the query's `name` asks for; a number beyond the last page is the last one."""
    pages = max(1, -(-len(rows) // CONSOLE_ROWS_MAX))
    number = min(max(asked.number(name, 1), 1), pages)
    start = (number - 1) * CONSOLE_ROWS_MAX
    return Paged(
        rows=rows[start : start + CONSOLE_ROWS_MAX],
        total=len(rows),
        number=number,
        pages=pages,
        previous_url=asked.url(**{name: number - 1}) if number > 1 else None,
        next_url=asked.url(**{name: number + 1}) if number < pages else None,
    )
