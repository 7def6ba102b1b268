"""Points in time as people type them: ISO 8601, `10m` or `10m ago`, `now`, `today` and `yesterday`.

A time without a zone is local time. The answer shows it with its zone (`with_zone`), so that a reader of another zone
sees what was meant.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

TIME_FORMS = (
    "an ISO 8601 time (local time where it names no zone), 10m (so long ago; also s, h, d), now, today or yesterday "
    "(from local midnight)"
)
DUE_FORMS = "an ISO 8601 time such as 2027-01-01T09:00 (local time where it names no zone)"
_AGO = re.compile(r"-?([0-9]{1,12}[smhd])( ago)?", re.ASCII)
_DAYS_AGO = {"today": 0, "yesterday": 1}
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)"  # for Python and JSON Schema
_FORMAT = re.compile(DURATION)


def parse_time_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. Raises ValueError for what is no time, also one that a change of clocks skips."""
    if text == "now":
        return now_ms
    if text in _DAYS_AGO:
        midnight = datetime.fromtimestamp(now_ms / 1_000).replace(hour=0, minute=0, second=0, microsecond=0)
        # Clocks may skip midnight: then the day begins an hour later, and `timestamp` says so.
        return round((midnight - timedelta(days=_DAYS_AGO[text])).timestamp() * 1_000)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - parse_duration_ms(ago[1]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("it has another form" if "format" in str(error) else str(error)) from error
    try:
        return _local_ms(moment) if moment.tzinfo is None else round(moment.timestamp() * 1_000)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{text} is out of range") from error


def is_ago(text: str) -> bool:
    """True for `10m` and `10m ago`."""
    return _AGO.fullmatch(text) is not None


def names_no_zone(text: str) -> bool:
    """True for a point in time whose meaning depends on the local zone."""
    if text in _DAYS_AGO:
        return True
    try:
        return datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def with_zone(timestamp_ms: int) -> str:
    """The time in the local zone, ISO 8601 with the zone's offset."""
    moment = datetime.fromtimestamp(timestamp_ms / 1_000, UTC).astimezone()
    return moment.isoformat(timespec="milliseconds" if timestamp_ms % 1_000 else "seconds")


def local_zone(now_ms: int) -> str:
    """The name of the local zone now, such as CET."""
    return datetime.fromtimestamp(now_ms / 1_000, UTC).astimezone().tzname() or "local time"


def _local_ms(moment: datetime) -> int:
    seconds = moment.timestamp()
    found = datetime.fromtimestamp(seconds)
    if abs(found - moment) >= timedelta(seconds=1):
        raise ValueError(f"{moment.isoformat()} does not exist in the local zone: its clocks skip that hour")
    return round(seconds * 1_000)


def parse_duration_ms(text: str) -> int:
    """The milliseconds of a number with its unit, such as 90m, 1.5s or 250ms. Raises ValueError."""
    match = _FORMAT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return round(Decimal(match[1]) * _UNIT_MS[match[2]])


def duration_text(duration_ms: int) -> str:
    """The duration in the largest unit that tells it exactly."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms % _UNIT_MS[unit] == 0:
            return f"{duration_ms // _UNIT_MS[unit]}{unit}"
    return f"{duration_ms}ms"


def age_text(age_ms: int) -> str:
    """The age in its two largest units, such as 2m18s; below a second in milliseconds."""
    if age_ms < _UNIT_MS["s"]:
        return f"{age_ms}ms"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, age_ms = divmod(age_ms, _UNIT_MS[unit])
        if count or parts:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
