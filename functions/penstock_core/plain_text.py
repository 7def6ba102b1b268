"""Characters that a terminal obeys instead of showing them, and how text that others chose is shown without them.

They are the control characters C0, DEL and C1, the separators of lines and paragraphs, and the characters that change
the direction of text. An escape sequence in a record could rename your window, clear it, or hide what comes before it.
"""

import re

from penstock_core.errors import ErrorCode, PenstockError, shown

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def escaped(text: str, *, kept: str = "") -> str:
    r"""The text with each such character as `\x1b` or `\u202e`, but those in `kept`."""
    return _OBEYED.sub(lambda found: found[0] if found[0] in kept else _escape(found[0]), text)


def escaped_json(text: str) -> str:
    """The JSON `text`, whose strings have each such character as an escape of JSON. It means the same."""
    if text.isascii() and "\x7f" not in text:
        return text  # JSON itself escapes C0
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def check_label(name: str, text: str) -> None:
    """Raises INVALID_REQUEST if the text, which operators read, has such a character."""
    if _OBEYED.search(text):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{name}={shown(text)}: it must have no control characters, as operators read it"
        )


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
