"""The times of a schedule, and what clock changes do to them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SCHEDULE_CRON_LENGTH_MAX
from penstock_core.schedules.cron import next_run_ms, parse_cron

BERLIN, HOWE, APIA = "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"


def runs(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next runs behind a local time, as local times with their offsets."""
    now = int(datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000)
    found = []
    for _ in range(count):
        now = next_run_ms(cron, zone, now)
        found.append(datetime.fromtimestamp(now / 1_000, ZoneInfo(zone)).strftime("%m-%dT%H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("30 2 * * *", BERLIN, "2026-03-28T12:00", ["03-29T03:00+0200", "03-30T02:30+0200"]),
        ("15 2 * * *", HOWE, "2026-10-03T12:00", ["10-04T02:30+1100", "10-05T02:15+1100"]),
        ("0 0 * * *", APIA, "2011-12-29T12:00", ["12-31T00:00+1400", "01-01T00:00+1400"]),
        ("*/30 * * * *", BERLIN, "2026-03-29T01:30", ["03-29T03:00+0200", "03-29T03:30+0200"]),
    ],
)
def test_time_that_a_change_skips_runs_once_at_the_change(
    cron: str, zone: str, after: str, expected: list[str]
) -> None:
    assert runs(cron, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", ["10-25T02:30+0200", "10-26T02:30+0100"]),
        ("45 1 * * *", HOWE, "2026-04-04T12:00", ["04-05T01:45+1100", "04-06T01:45+1030"]),
        ("*/30 1-4 * * *", BERLIN, "2026-10-25T01:30", ["10-25T02:00+0200", "10-25T02:30+0200", "10-25T03:00+0100"]),
    ],
)
def test_time_that_comes_twice_runs_the_first_time(cron: str, zone: str, after: str, expected: list[str]) -> None:
    assert runs(cron, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        (
            "*/30 * * * *",
            BERLIN,
            "2026-10-25T01:30",
            ["10-25T02:00+0200", "10-25T02:30+0200", "10-25T02:00+0100", "10-25T02:30+0100", "10-25T03:00+0100"],
        ),
        ("45 * * * *", HOWE, "2026-04-05T01:00", ["04-05T01:45+1100", "04-05T01:45+1030", "04-05T02:45+1030"]),
        ("0 */2 * * *", BERLIN, "2026-10-25T01:30", ["10-25T02:00+0200", "10-25T02:00+0100", "10-25T04:00+0100"]),
        ("5 * 26 * *", BERLIN, "2026-10-25T02:30", ["10-26T00:05+0100"]),
    ],
)
def test_schedule_of_each_hour_does_not_rest_while_an_hour_comes_twice(
    cron: str, zone: str, after: str, expected: list[str]
) -> None:
    assert runs(cron, zone, after, len(expected)) == expected


@pytest.mark.parametrize("zone", [BERLIN, HOWE, "America/New_York", "Africa/Casablanca", "America/Havana"])
def test_schedule_of_each_minute_runs_each_minute_of_a_year(zone: str) -> None:
    """Around each change of the clocks, in both directions: a minute is a minute."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=number) for number in range(24 * 365)]
    changes = [
        each
        for each in hours
        if each.astimezone(ZoneInfo(zone)).utcoffset()
        != ((each + timedelta(hours=1)).astimezone(ZoneInfo(zone)).utcoffset())
    ]
    assert len(changes) >= 2
    for each in changes:
        now = int((each - timedelta(hours=2)).timestamp() * 1_000)
        for _ in range(6 * 60):
            found = next_run_ms("* * * * *", zone, now)
            assert found == now + 60_000
            now = found


def test_schedule_that_was_put_in_the_second_pass_waits_for_the_next_day() -> None:
    second_pass = int(datetime(2026, 10, 25, 2, 10, tzinfo=ZoneInfo(BERLIN), fold=1).timestamp() * 1_000)
    found = datetime.fromtimestamp(next_run_ms("30 2 * * *", BERLIN, second_pass) / 1_000, ZoneInfo(BERLIN))
    assert found.isoformat() == "2026-10-26T02:30:00+01:00"


@given(
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    zone=st.sampled_from([BERLIN, HOWE, "America/New_York", "Africa/Casablanca", "UTC", "America/Havana"]),
    day=st.integers(0, 3_000),
)
def test_daily_schedule_runs_once_on_each_local_day(hour: int, minute: int, zone: str, day: int) -> None:
    """Whatever the clocks do, each of ten days has one run: at its time, or at the change that skips it."""
    now = int((datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=day)).timestamp() * 1_000)
    days = []
    for _ in range(10):
        now = next_run_ms(f"{minute} {hour} * * *", zone, now)
        moment = datetime.fromtimestamp(now / 1_000, ZoneInfo(zone))
        days.append(moment.date())
        naive = datetime(moment.year, moment.month, moment.day, hour, minute, tzinfo=ZoneInfo(zone))
        is_there = naive.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == naive.replace(tzinfo=None)
        assert not is_there or moment.astimezone(UTC) == naive.astimezone(UTC)
    assert days == [days[0] + timedelta(days=number) for number in range(10)]


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * *", "has 4 fields: give five"),
        ("* * * * * *", "has 6 fields: give five"),
        ("@daily", "has 1 fields: give five"),
        ("", "has 0 fields"),
        ("60 * * * *", "Bad minute"),
        ("* * * * 8", "Bad day-of-week"),
        ("*/0 * * * *", "Bad minute"),
        ("5-1 * * * *", "Bad minute"),
        ("0 0 31 2 *", "Bad day-of-month"),
        ("\x00 * * * *", "Bad minute"),
        ("٣ * * * *", "Bad minute"),
        ("* * * * 5L/2", "cron='* * * * 5L/2'"),
        ("0 0 * * " + "1," * 100 + "1", f"use at most {SCHEDULE_CRON_LENGTH_MAX}"),
    ],
)
def test_bad_expression_is_refused_with_its_value_and_the_way_out(cron: str, words: str) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_cron(cron, "UTC", 0)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert words in caught.value.message


@given(st.text(alphabet="0123456789*/,-#LW ABCDEFGHIJMNOPRSTUVabc?.\t", max_size=40))
def test_any_text_is_an_expression_or_invalid(text: str) -> None:
    try:
        found = parse_cron(text, "UTC", 0)
    except PenstockError as error:
        found = error.code.name
    assert found in (" ".join(text.split()), "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("Berlin", "Do you mean 'Europe/Berlin'?"),
        ("../../etc/passwd", "is no time zone"),
        ("", "'UTC'"),
        ("UTC\x00", "is no time zone"),
        ("x" * 10_000, "is no time zone"),
    ],
)
def test_unknown_zone_is_refused(zone: str, words: str) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_cron("* * * * *", zone, 0)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert words in caught.value.message


def test_rare_day_is_found_and_spaces_are_made_single() -> None:
    assert parse_cron("  0 \t0 29  2 * ", "UTC", 0) == "0 0 29 2 *"
    assert runs("0 0 29 2 *", "UTC", "2026-01-01T00:00", 2) == ["02-29T00:00+0000", "02-29T00:00+0000"]
