"""Times, bytes and headers that people type into forms.

Settings in forms: a field each, named `set.NAME`. Times may be durations, such as 7d.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.errors import InvalidError
from penstock.model import Headers
from penstock.model.times import parse_duration_ms, parse_time_ms
from penstock_core.errors import ErrorCode, shown
from penstock_core.limits import UNLIMITED
from penstock_core.log.topic import TopicConfig
from penstock_core.text import escaped, escaped_json, parse_json

PREFIX = "set."
TOPIC_DEFAULTS: Mapping[str, Any] = asdict(TopicConfig())
_TIMES = ("_ms", "_ms_min", "_ms_max")
_ENDLESS = ("forever", "unlimited")
_DIGITS_MAX = 19


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
    """The bytes that the text stands for: UTF-8, pairs of hexadecimal digits (`form` is hex), or base64.

    Browsers send each newline of a field as two characters. Text gets it back as one.
    """
    if form == "base64":
        return _base64_of(text, what)
    if form != "hex":
        return text.replace("\r\n", "\n").encode(errors="surrogatepass")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST, f"{what}={shown(text)} is no hexadecimal: give pairs of digits such as 00 ff"
        ) from error


def typed_form(data: bytes, *, is_line: bool = False) -> tuple[str, str]:
    """The text of a field, and the form of `bytes_of` that makes these bytes of it again.

    Only text that a browser shows and sends back unchanged is text. A field of one line keeps no newlines.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
    if "\r" in text or escaped(text, kept="\n\t") != text or (is_line and "\n" in text):
        return base64.b64encode(data).decode(), "base64"
    return text, "text"


def headers_of(text: str) -> Headers:
    """A header for each line `name: value`; a line without a colon is a header without a value."""
    found: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            found.append((name.strip(), value.strip().encode() if colon else None))
    return tuple(found)


def headers_json(headers: Headers) -> str:
    """All headers as JSON, a line for each: `["name", "value"]`, with null or `{"base64": "…"}` for other values."""
    lines = []
    for name, value in headers:
        text, form = (None, "text") if value is None else typed_form(value)
        lines.append(json.dumps([name, {"base64": text} if form == "base64" else text], ensure_ascii=False))
    return escaped_json("[" + ",\n".join(lines) + "]")


def headers_of_json(text: str) -> Headers:
    """The inverse of `headers_json`; no text is no headers. Raises InvalidError."""
    try:
        given: Any = parse_json(text) if text.strip() else []
    except ValueError:
        given = None
    if not (isinstance(given, list) and all(isinstance(each, list) and len(each) == 2 for each in given)):
        given = [(None, None)]
    found: list[tuple[str, bytes | None]] = []
    for name, value in given:
        if isinstance(name, str) and isinstance(value, dict) and [*value] == ["base64"]:
            found.append((name, _base64_of(str(value["base64"]), f"header {name:.60}")))
        elif isinstance(name, str) and (value is None or isinstance(value, str)):
            found.append((name, None if value is None else value.encode(errors="surrogatepass")))
        else:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST,
                f'headers={shown(text)}: give a list such as [["name", "text"], ["other", {{"base64": "AA=="}}]]',
            )
    return tuple(found)


def _base64_of(text: str, what: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"{what}={shown(text)} is no base64") from error


def names_of(text: str) -> list[str]:
    """The names of a field, with commas or blanks between them."""
    return text.replace(",", " ").split()


def duration_of(text: str) -> int:
    """The milliseconds of a duration such as 5m."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"{shown(text)} is no duration: give one such as 5m") from error


def changed_settings(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that differ from their defaults."""
    return {name: value for name, value in config.items() if value != defaults.get(name)}


def settings_of(form: Mapping[str, str], config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the form that differ from `config`, or else from their default. An empty field is the default.

    Raises InvalidError for a value that is no number or duration where the default is a number. The service checks the
    rest.
    """
    changes: dict[str, Any] = {}
    for name, default in defaults.items():
        text = form.get(PREFIX + name)
        if text is None:
            continue
        current = config.get(name, default)
        value = default if not text.strip() else _value(name, text.strip(), default)
        if value != current:
            changes[name] = None if value == default else value
    return {name: value for name, value in changes.items() if value is not None or name in config}


def _value(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return text == "true"
    if not isinstance(default, int):
        return text
    if text in _ENDLESS or text == str(UNLIMITED):
        return UNLIMITED
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    try:
        if name.endswith(_TIMES):
            return parse_duration_ms(text)
    except ValueError:
        pass
    forms = "a number of milliseconds, or a duration such as 90m or 7d" if name.endswith(_TIMES) else "a whole number"
    raise InvalidError(ErrorCode.INVALID_CONFIG, f"{name}={shown(text)}: give {forms}")
