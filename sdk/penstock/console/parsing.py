"""Times, bytes and headers that people type into forms."""

from penstock.errors import InvalidError
from penstock.model import Headers
from penstock.model.times import parse_duration_ms, parse_time_ms
from penstock_core.errors import ErrorCode, shown


def typed_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of a time as `parse_time_ms` takes it, or the number itself."""
    text = text.strip()
    if text.isascii() and text.isdigit() and 8 < len(text) < 19:  # shorter ones are dates: 20261123
        return int(text)
    try:
        return max(0, parse_time_ms(text, now_ms))
    except ValueError as error:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST,
            f"{shown(text)} is no time ({error!s:.100}): give one such as 2026-11-23 18:30 (local time), 5m ago, or "
            "milliseconds since 1970",
        ) from error


def bytes_of(text: str, form: str, what: str) -> bytes:
    """The bytes that the text stands for: UTF-8, or pairs of hexadecimal digits if `form` is hex."""
    if form != "hex":
        return text.encode(errors="surrogatepass")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST, f"{what}={shown(text)} is no hexadecimal: give pairs of digits such as 00 ff"
        ) from error


def headers_of(text: str) -> Headers:
    """A header for each line `name: value`; a line without a colon is a header without a value."""
    found: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            found.append((name.strip(), value.strip().encode() if colon else None))
    return tuple(found)


def duration_of(text: str) -> int:
    """The milliseconds of a duration such as 5m."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"{shown(text)} is no duration: give one such as 5m") from error
