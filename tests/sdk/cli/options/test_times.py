import time
from collections.abc import Iterator

import click
import pytest

from penstock.cli.options.times import TIME
from penstock.typed_times import parse_time_ms, with_zone

NOW_MS = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z, 17:13 in New York
MIDNIGHT_MS = 1_699_938_000_000  # of that day in New York
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("now", NOW_MS),
        ("today", MIDNIGHT_MS),
        ("yesterday", MIDNIGHT_MS - DAY_MS),
        ("10m", NOW_MS - 600_000),
        ("10m ago", NOW_MS - 600_000),
        ("-2d", NOW_MS - 2 * DAY_MS),
        ("99999d", 0),
        ("2023-11-14T22:13:20.123Z", NOW_MS),
        ("2023-11-14T23:13:20.123+01:00", NOW_MS),
        ("2023-11-14T17:13:20.123", NOW_MS),
        ("2023-11-14", MIDNIGHT_MS),
    ],
)
def test_time_is_local_unless_it_names_a_zone(text: str, timestamp_ms: int) -> None:
    assert parse_time_ms(text, NOW_MS) == timestamp_ms


@pytest.mark.parametrize("text", ["", "tomorrow", "10", "10w", "m", "ago", "10m later", "2023-13-01", "22:13"])
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_time_ms(text, NOW_MS)
    with pytest.raises(click.BadParameter, match=r"is not a time \(.*\): give an ISO 8601 time"):
        TIME.convert(text, None, None)


def test_time_that_the_clocks_skip_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="2026-03-08T02:30:00 does not exist in the local zone"):
        TIME.convert("2026-03-08T02:30", None, None)


def test_time_that_comes_twice_is_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert TIME.convert("2026-11-01T01:30", None, None) == 1_793_511_000_000
    assert capsys.readouterr().err == "2026-11-01T01:30 is 2026-11-01T01:30:00-04:00\n"


def test_time_without_a_zone_is_shown_with_its_zone(capsys: pytest.CaptureFixture[str]) -> None:
    assert TIME.convert("2026-11-30T12:00", None, None) == 1_796_058_000_000
    assert capsys.readouterr().err == "2026-11-30T12:00 is 2026-11-30T12:00:00-05:00\n"
    TIME.convert("2026-11-30T12:00Z", None, None)
    TIME.convert("10m", None, None)
    assert capsys.readouterr().err == ""


def test_number_of_a_default_stays_as_it_is() -> None:
    assert TIME.convert(NOW_MS, None, None) == NOW_MS


def test_day_whose_midnight_the_clocks_skip_begins_an_hour_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Africa/Cairo")
    time.tzset()
    noon_ms = 1_777_021_200_000  # of 2026-04-24, which begins at 01:00
    assert with_zone(parse_time_ms("today", noon_ms)) == "2026-04-24T01:00:00+03:00"
    assert with_zone(parse_time_ms("yesterday", noon_ms + DAY_MS)) == "2026-04-24T01:00:00+03:00"
