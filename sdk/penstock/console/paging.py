"""A long list in pages.

The list of a page: as it is now, or as it was when the service takes long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.console.background import Background, Look
from penstock.console.page import Asked
from penstock_core.limits import CONSOLE_LISTS_MS_MAX, CONSOLE_ROWS_MAX

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


def listed(asked: Asked, known: Background[Sequence[Row]], read: Callable[[], Sequence[Row]]) -> Look[Sequence[Row]]:
    """The rows, read anew. After `CONSOLE_LISTS_MS_MAX` they are those of the last reading, or not known yet.

    A page that says what an action has done waits for as long as `read` takes: it must show what the action has made of
    the list. Raises what `read` raises.
    """
    if asked.said is None:
        known.begin()
        look = known.settled(CONSOLE_LISTS_MS_MAX)
        if look.down is not None:
            raise look.down
        if look.error is None:
            return look
    return Look(value=read(), age_ms=0, error=None, is_reading=False)
