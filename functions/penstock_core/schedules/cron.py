"""The times of a schedule: a cron expression of five fields, read in the local time of a zone.

cronsim walks over local times without a zone. This module alone knows what clock changes do to them:

| the local time | comes to                                     |
|----------------|----------------------------------------------|
| is there once  | that moment                                  |
| comes twice    | the first moment; both, if the hour is `*`   |
| is skipped     | the moment of the change                     |

So a time of the day that comes twice runs once, and `*/15 * * * *` does not rest for the hour that comes twice. All
times that one change skips run once together, at the change.

tzdata has the names of the zones, and their rules where the system has none. Pure but for reading these.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import SCHEDULE_CRON_LENGTH_MAX

_FIELDS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_BACK_MAX = timedelta(hours=3)  # that clocks go back at once: Antarctica/Casey in 2010
# cronsim's own error, and what it lets through for texts that mix its extensions, such as `5L/2`
_REFUSALS = (CronSimError, AssertionError, AttributeError, LookupError, OverflowError, TypeError, ValueError)


def parse_cron(cron: str, time_zone: str, now_ms: int) -> str:
    """The expression with single spaces. Raises INVALID_REQUEST unless it has a run after `now_ms` in that zone."""
    _check_zone(time_zone)
    if len(cron) > SCHEDULE_CRON_LENGTH_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"cron={shown(cron)} has {len(cron)} characters: use at most {SCHEDULE_CRON_LENGTH_MAX}",
        )
    fields = cron.split()
    if len(fields) != _FIELDS:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"cron={shown(cron)} has {len(fields)} fields: give five, minute hour day month weekday, as in "
            "'30 2 * * MON-FRI'",
        )
    next_run_ms(cron, time_zone, now_ms)
    return " ".join(fields)


def next_run_ms(cron: str, time_zone: str, after_ms: int) -> int:
    """The first run later than `after_ms`. Raises INVALID_REQUEST for a bad expression, and one without a next run."""
    zone = ZoneInfo(time_zone)
    after = _EPOCH + timedelta(milliseconds=after_ms)
    for local in _local_times(cron, after.astimezone(zone).replace(tzinfo=None)):
        moment = _moment(local, zone)
        if moment > after:
            second = _second_pass(cron, zone, after) if cron.split()[1].startswith("*") else None
            return (min(moment, second or moment) - _EPOCH) // timedelta(milliseconds=1)
    raise PenstockError(
        ErrorCode.INVALID_REQUEST, f"cron={shown(cron)} has no run in the next 50 years: no such day comes"
    )


def _local_times(cron: str, after: datetime) -> Iterator[datetime]:
    """The local times of the expression behind `after`, in order."""
    try:
        yield from CronSim(cron, after)
    except _REFUSALS as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"cron={shown(cron)}: {error or 'this mix of signs makes no times'}. Give minute hour day month weekday, "
            "as in '30 2 * * MON-FRI' or '*/15 * * * *'",
        ) from error


def _moment(local: datetime, zone: ZoneInfo) -> datetime:
    """The moment of a local time: its first, or the clock change that skips it."""
    first = local.replace(tzinfo=zone).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == local:
        return first
    early = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    before, low, high = (
        early.astimezone(zone).utcoffset(),
        0,
        (first - early) // _SECOND,
    )  # the change is in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        if (early + middle * _SECOND).astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return early + high * _SECOND


def _second_pass(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The next run among local times that come for the second time: their first moments are over, or now."""
    before, behind = ((after + way * _BACK_MAX).astimezone(zone).utcoffset() or timedelta() for way in (-1, 1))
    for local in _local_times(cron, (after + behind).replace(tzinfo=None)) if behind < before else ():
        if local > (after + before).replace(tzinfo=None):
            break
        moment = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
        if moment > after and moment.astimezone(zone).replace(tzinfo=None) == local:
            return moment
    return None


def _check_zone(name: str) -> None:
    if name in _zones():
        return
    likely = get_close_matches(name[:SCHEDULE_CRON_LENGTH_MAX], _zones(), n=1)
    raise PenstockError(
        ErrorCode.INVALID_REQUEST,
        f"time_zone={shown(name)} is no time zone of the IANA database: give a name such as 'UTC' or 'Europe/Berlin'"
        + (f". Do you mean {likely[0]!r}?" if likely else ""),
    )


@cache
def _zones() -> frozenset[str]:
    return frozenset((files("tzdata") / "zones").read_text().split())
