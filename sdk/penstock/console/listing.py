"""The list of a page: as it is now, or as it was when the service takes long."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.console.background import Background, Look
from penstock.console.page import Asked
from penstock_core.limits import CONSOLE_LISTS_MS_MAX

Row = TypeVar("Row")


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
