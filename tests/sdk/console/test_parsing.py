import pytest

from penstock.console.parsing import bytes_of, headers_of, typed_ms
from penstock.errors import InvalidError

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01 00:00:01.5", 1_500),
        ("1970-01-01T01:00+01:00", 0),
        ("5m ago", NOW_MS - 300_000),
        ("999999999999d ago", 0),
        ("1960-01-01", 0),
    ],
)
def test_time_is_read_as_people_write_it(text: str, timestamp_ms: int) -> None:
    assert typed_ms(text, NOW_MS) == timestamp_ms


@pytest.mark.parametrize("text", ["", "soon", "5 minutes ago", "<b>", "2026-13-01", "٣٣٣٣٣٣٣٣٣"])
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(InvalidError, match=r"is no time \(.*\): give one such as"):
        typed_ms(text, NOW_MS)


def test_bytes_are_text_or_hexadecimal() -> None:
    assert bytes_of("Zoë", "text", "key") == "Zoë".encode()
    assert bytes_of("00 ff", "hex", "key") == b"\x00\xff"
    with pytest.raises(InvalidError, match="key='x' is no hexadecimal"):
        bytes_of("x", "hex", "key")


def test_headers_are_lines() -> None:
    assert headers_of("type: order\r\n\nurl: http://x\nempty:\nnone") == (
        ("type", b"order"),
        ("url", b"http://x"),
        ("empty", b""),
        ("none", None),
    )
