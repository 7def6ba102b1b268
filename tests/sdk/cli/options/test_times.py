import click
import pytest

from penstock.cli.options.times import TIME, parse_time_ms

NOW_MS = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z
MIDNIGHT_MS = 1_699_920_000_000
DAY_MS = 86_400_000


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
        ("2023-11-14T22:13:20.123", NOW_MS),
        ("2023-11-14", MIDNIGHT_MS),
    ],
)
def test_time_is_milliseconds_since_1970_in_utc_unless_it_names_a_zone(text: str, timestamp_ms: int) -> None:
    assert parse_time_ms(text, NOW_MS) == timestamp_ms


@pytest.mark.parametrize("text", ["", "tomorrow", "10", "10w", "m", "ago", "10m later", "2023-13-01", "22:13"])
def test_other_text_is_no_time(text: str) -> None:
    assert parse_time_ms(text, NOW_MS) is None
    with pytest.raises(click.BadParameter, match=r"is not a time: give an ISO 8601 time, 10m"):
        TIME.convert(text, None, None)


def test_number_of_a_default_stays_as_it_is() -> None:
    assert TIME.convert(NOW_MS, None, None) == NOW_MS
