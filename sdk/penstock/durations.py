"""Durations as people write them: 90m, 12h, 14d."""

import re

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORMAT = re.compile(r"([0-9]{1,12})(s|m|h|d)", re.ASCII)


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
