"""Pages of a list of which a caller sees a part: no page, and no `after` of the next one, tells what is hidden."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

ReadPage = Callable[[str], tuple[Sequence[T], str | None]]
"""Gives items behind a place, and the place of the last, None if there are no more."""


def show_all(_name: str) -> bool:
    """True: for a caller who sees everything."""
    return True


def shown_page(
    read: ReadPage[T], after: str, limit: int, is_shown: Callable[[T], bool], place_of: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Up to `limit` items behind `after` that are shown, and the place of the last of them if more are shown behind it.

    Calls `read` until there are enough, so a caller who sees little of a long list costs many reads.
    """
    shown: list[T] = []
    place: str | None = after
    while place is not None and len(shown) <= limit:
        found, place = read(place)
        shown += filter(is_shown, found)
    page = shown[:limit]
    return page, place_of(page[-1]) if len(shown) > limit else None
