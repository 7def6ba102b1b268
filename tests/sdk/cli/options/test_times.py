import time
from collections.abc import Iterator

import click
import pytest

from penstock.cli.options.times import DURATION, DURATION_OR_FOREVER, START, TIME, Start
from penstock.consumer.consumer import Consumer
from penstock.model import TopicPartition
from penstock.model.times import age_text, duration_text, parse_duration_ms, parse_time_ms, with_zone
from penstock.testing import MemoryPenstock
from penstock_core.limits import UNLIMITED

NOW_MS = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z, 17:13 in New York
MIDNIGHT_MS = 1_699_938_000_000  # of that day in New York
DAY_MS = 86_400_000
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


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


@pytest.mark.parametrize("kind", [TIME, START])
def test_time_before_1970_is_refused(kind: click.ParamType[object]) -> None:
    with pytest.raises(click.BadParameter, match=r"'1969-12-30' .*\(it is before 1970\): give "):
        kind.convert("1969-12-30", None, None)


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


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("0s", 0), ("90s", 90_000), ("90m", 5_400_000), ("12h", 43_200_000), ("14d", 1_209_600_000)],
)
def test_number_with_its_unit_is_milliseconds(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert DURATION.convert(text, None, None) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "d", "5w", "1.5.h", "-1d", "5 m", "5M", "٣d", "1234567890123s", "forever"])
def test_other_text_is_no_number_with_its_unit(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        parse_duration_ms(text)


def test_forever_is_unlimited_where_an_option_may_have_no_end() -> None:
    assert DURATION_OR_FOREVER.convert("forever", None, None) == UNLIMITED
    with pytest.raises(click.BadParameter, match=r"'ever' is not a duration: .* s, m, h or d, or forever"):
        DURATION_OR_FOREVER.convert("ever", None, None)
    with pytest.raises(click.BadParameter, match=r"'forever' is not a duration: write a number with ms, s, m, h or d$"):
        DURATION.convert("forever", None, None)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0d"), (999, "999ms"), (1_000, "1s"), (90_000, "90s"), (172_800_000, "2d"), (172_800_001, "172800001ms")],
)
def test_duration_is_shown_in_the_largest_unit_that_tells_it_exactly(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


@pytest.fixture
def consumer(service: MemoryPenstock) -> Iterator[Consumer]:
    """Of two partitions: the first holds the offsets 2 to 4, at the times 200 to 400; the second is empty."""
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for offset in range(5):
            producer.send("orders", b"x", partition=0, timestamp_ms=offset * 100)
    service.admin().truncate("orders", {0: 2})
    with service.consumer() as consumer:
        yield consumer


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (Start(end="earliest"), [2, 0]),
        (Start(end="latest"), [5, 0]),
        (Start(offset=7), [7, 7]),
        (Start(timestamp_ms=250), [3, 0]),
        (Start(timestamp_ms=401), [5, 0]),
        (Start(last=1), [4, 0]),
        (Start(last=9), [2, 0]),
    ],
)
def test_start_is_an_offset_of_each_partition(consumer: Consumer, start: Start, offsets: list[int]) -> None:
    assert start.offsets(consumer, PARTITIONS) == dict(zip(PARTITIONS, offsets, strict=True))


@pytest.mark.parametrize(
    ("start", "reset"),
    [
        (Start(offset=7), "none"),
        (Start(end="latest"), "latest"),
        (Start(end="earliest"), "earliest"),
        (Start(timestamp_ms=250), "earliest"),
        (Start(last=1), "earliest"),
    ],
)
def test_only_a_given_offset_must_exist(start: Start, reset: str) -> None:
    assert start.offset_reset == reset


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(end="earliest")),
        ("latest", Start(end="latest")),
        ("12", Start(offset=12)),
        ("1970-01-01T00:00:01Z", Start(timestamp_ms=1_000)),
    ],
)
def test_text_is_an_end_an_offset_or_a_time(text: str, start: Start) -> None:
    assert START.convert(text, None, None) == start
    assert START.convert(start, None, None) == start


@pytest.mark.parametrize("text", ["", "first", "-1", "٣", "1.5"])
def test_other_text_is_no_start(text: str) -> None:
    with pytest.raises(click.BadParameter, match="give earliest, latest, an offset, an ISO 8601 time"):
        START.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("5", 5_000),
        ("10", 10_000),
        ("0.05", 50),
        ("10s", 10_000),
        ("1.5s", 1_500),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("0", 0),
    ],
)
def test_duration_takes_fractions_and_a_number_without_a_unit_is_seconds(text: str, duration_ms: int) -> None:
    assert DURATION.convert(text, None, None) == duration_ms


@pytest.mark.parametrize("text", ["", ".", "1.", ".5s", "1e3", "-1s", "1.2.3", "10 s", "١s", "٣"])
def test_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration: write a number with ms, s, m, h or d"):
        DURATION.convert(text, None, None)


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [(0, "0ms"), (999, "999ms"), (1_000, "1s"), (138_044, "2m18s"), (3_600_000, "1h0m"), (2 * DAY_MS + 1, "2d0h")],
)
def test_age_is_told_in_two_units(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text
