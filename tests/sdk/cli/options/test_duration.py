import click
import pytest

from penstock.cli.options.duration import DURATION, DURATION_OR_FOREVER
from penstock.durations import duration_text, parse_duration_ms
from penstock_core.limits import UNLIMITED


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("0s", 0), ("90s", 90_000), ("90m", 5_400_000), ("12h", 43_200_000), ("14d", 1_209_600_000)],
)
def test_number_with_its_unit_is_milliseconds(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert DURATION.convert(text, None, None) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "d", "5w", "1.5h", "-1d", "5 m", "5M", "٣d", "1234567890123s", "forever"])
def test_other_text_is_no_number_with_its_unit(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        parse_duration_ms(text)


def test_forever_is_unlimited_where_an_option_may_have_no_end() -> None:
    assert DURATION_OR_FOREVER.convert("forever", None, None) == UNLIMITED
    with pytest.raises(click.BadParameter, match=r"'ever' is not a duration: .* s, m, h or d, or forever"):
        DURATION_OR_FOREVER.convert("ever", None, None)
    with pytest.raises(click.BadParameter, match=r"'forever' is not a duration: write a number with s, m, h or d$"):
        DURATION.convert("forever", None, None)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0d"), (999, "999ms"), (1_000, "1s"), (90_000, "90s"), (172_800_000, "2d"), (172_800_001, "172800001ms")],
)
def test_duration_is_shown_in_the_largest_unit_that_tells_it_exactly(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
