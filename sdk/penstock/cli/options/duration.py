"""Durations as people write them: 90m, 12h, 14d, forever."""

import re
from typing import Any

import click

from penstock_core.limits import UNLIMITED

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORMAT = re.compile(r"([0-9]{1,12})(s|m|h|d)", re.ASCII)
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


def parse_duration_ms(text: str) -> int:
    """The milliseconds of a number with its unit, such as 90m. Raises ValueError."""
    match = _FORMAT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNIT_MS[match[2]]


def duration_text(duration_ms: int) -> str:
    """The duration in the largest unit that tells it exactly."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms % _UNIT_MS[unit] == 0:
            return f"{duration_ms // _UNIT_MS[unit]}{unit}"
    return f"{duration_ms}ms"
