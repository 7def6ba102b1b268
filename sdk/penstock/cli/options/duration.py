"""Durations as people write them: 90m, 12h, 14d, forever."""

from typing import Any

import click

from penstock.durations import duration_text, parse_duration_ms
from penstock_core.limits import UNLIMITED

_FOREVER = "forever"


class Duration(click.ParamType[int]):
    """A click type: a whole number with its unit becomes milliseconds, at most `ms_max` of them.

    With `has_forever`, `forever` becomes -1.
    """

    name = "duration"

    def __init__(self, *, has_forever: bool, ms_max: int | None = None) -> None:
        self._forms = f"write a number with s, m, h or d{f', or {_FOREVER}' if has_forever else ''}"
        self._has_forever = has_forever
        self._ms_max = ms_max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds of the text. Fails with the format if it is not a duration, and with the longest one."""
        if self._has_forever and value == _FOREVER:
            return UNLIMITED
        try:
            duration_ms = parse_duration_ms(str(value))
        except ValueError:
            self.fail(f"{value!r:.100} is not a duration: {self._forms}", param, ctx)
        if self._ms_max is not None and duration_ms > self._ms_max:
            self.fail(f"{value!r:.100} is too long: give {duration_text(self._ms_max)} at most", param, ctx)
        return duration_ms


DURATION = Duration(has_forever=False)
DURATION_OR_FOREVER = Duration(has_forever=True)
