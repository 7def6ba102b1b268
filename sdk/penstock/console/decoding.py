"""Bytes of a record as a person reads them: as JSON, as text, or in hexadecimal."""

import json
from dataclasses import dataclass
from typing import Literal

from penstock_core.limits import CONSOLE_CELL_CHARACTERS_MAX, CONSOLE_VALUE_CHARACTERS_MAX

View = Literal["auto", "json", "text", "hex"]
VIEWS: tuple[View, ...] = ("auto", "json", "text", "hex")
Kind = Literal["null", "empty", "json", "text", "hex"]

_UTF8_BYTES = 4  # of one character at most
_HEX_LINE = 16
_HEX_BYTES_MAX = CONSOLE_VALUE_CHARACTERS_MAX // 4
_PLAIN_CONTROLS = frozenset("\t\n\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The text of some bytes. `size` counts the bytes. `is_cut`: there is more than the text."""

    kind: Kind
    text: str
    size: int
    is_cut: bool = False


def view_of(text: str) -> View:
    """The view of this name; auto for another one."""
    return next((view for view in VIEWS if view == text), "auto")


def cell(data: bytes | None, view: View = "auto") -> Decoded:
    """The beginning of some bytes, for a table."""
    if not data:
        return _nothing(data)
    head = data[: _UTF8_BYTES * CONSOLE_CELL_CHARACTERS_MAX]
    text = None if view == "hex" else _text(head, is_any=view == "text", is_cut=len(head) < len(data))
    kind: Kind = "hex" if text is None else "text"
    shown = head.hex(" ") if text is None else text
    return Decoded(
        kind=kind,
        text=shown[:CONSOLE_CELL_CHARACTERS_MAX],
        size=len(data),
        is_cut=len(head) < len(data) or len(shown) > CONSOLE_CELL_CHARACTERS_MAX,
    )


def whole(data: bytes | None, view: View = "auto") -> Decoded:
    """The part of some bytes that a page shows. Bytes that are no JSON are text, and those that are no text are hex."""
    if not data:
        return _nothing(data)
    text = None if view == "hex" else _text(data, is_any=view == "text", is_cut=False)
    if text is None:
        return Decoded(kind="hex", text=_hex_lines(data), size=len(data), is_cut=len(data) > _HEX_BYTES_MAX)
    pretty = None if view == "text" else _pretty(text)
    shown = text if pretty is None else pretty
    return Decoded(
        kind="text" if pretty is None else "json",
        text=shown[:CONSOLE_VALUE_CHARACTERS_MAX],
        size=len(data),
        is_cut=len(shown) > CONSOLE_VALUE_CHARACTERS_MAX,
    )


def _nothing(data: bytes | None) -> Decoded:
    return Decoded(kind="null", text="null", size=0) if data is None else Decoded(kind="empty", text="empty", size=0)


def _text(data: bytes, *, is_any: bool, is_cut: bool) -> str | None:
    """The bytes as UTF-8; None if they are something else. A cut may have split the last character."""
    if is_any:
        return data.decode(errors="replace")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - _UTF8_BYTES:
            return None
        text = data[: error.start].decode()
    return text if all(each >= " " or each in _PLAIN_CONTROLS for each in text) else None


def _pretty(text: str) -> str | None:
    """An object or array with a line for each field; None if the text is no JSON, or too long to be shown.

    It ends a little behind the bound: indented, deep arrays are a thousand times as long as they are stored.
    """
    if not text.lstrip().startswith(("{", "[")) or len(text) > CONSOLE_VALUE_CHARACTERS_MAX:
        return None
    lines, length = [], 0
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)):
            lines.append(part)
            length += len(part)
            if length > CONSOLE_VALUE_CHARACTERS_MAX:
                break
    except (ValueError, RecursionError):
        return None
    return "".join(lines)


def _hex_lines(data: bytes) -> str:
    lines = []
    for at in range(0, min(len(data), _HEX_BYTES_MAX), _HEX_LINE):
        part = data[at : at + _HEX_LINE]
        plain = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {plain}")
    return "\n".join(lines)
