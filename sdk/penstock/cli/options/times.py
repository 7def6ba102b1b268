"""Points in time as people write them: ISO 8601, `10m` or `10m ago`, `now`, `today` and `yesterday` in UTC."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from penstock.durations import parse_duration_ms

TIME_FORMS = "an ISO 8601 time, 10m (so long ago; also s, h, d), now, today or yesterday (from midnight, UTC)"

_AGO = re.compile(r"-?([0-9]{1,12}[smhd])( ago)?", re.ASCII)
_DAYS_AGO = {"today": 0, "yesterday": 1}


class TimeType(click.ParamType[int]):
    """A click type: milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds of the text. Fails with the forms that there are."""
        if isinstance(value, int):
            return value
        timestamp_ms = parse_time_ms(str(value), time.time_ns() // 1_000_000)
        if timestamp_ms is None:
            self.fail(f"{value!r:.100} is not a time: give {TIME_FORMS}", param, ctx)
        return timestamp_ms


TIME = TimeType()


def parse_time_ms(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970, in UTC if the text names no zone; None if it is no time."""
    if text == "now":
        return now_ms
    if text in _DAYS_AGO:
        midnight = datetime.fromtimestamp(now_ms / 1_000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return _timestamp_ms(midnight - timedelta(days=_DAYS_AGO[text]))
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - parse_duration_ms(ago[1]))
    try:
        return _timestamp_ms(datetime.fromisoformat(text))
    except ValueError:
        return None


def _timestamp_ms(moment: datetime) -> int:
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
