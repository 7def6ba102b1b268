"""JSON as requests carry it: parsed strictly, and with bounds on what one document may cost.

Characters that a terminal obeys instead of showing them, and how text that others chose is shown without them.

The obeyed characters are the control characters C0, DEL and C1, the separators of lines and paragraphs, and the
characters that change the direction of text. An escape sequence in a record could rename your window, clear it, or hide
what comes before it.

Counts and sizes as people read them.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import JSON_DEPTH_MAX, JSON_NAMES_MAX, KIB

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def parse_json(text: str, number: Callable[[str], Any] | None = None) -> Any:
    """The value that the JSON `text` holds. `number` makes a value of each number's text; None takes int and float.

    Raises ValueError for what is not JSON (RFC 8259), for NaN and infinities, and for numbers of thousands of digits.
    Raises it also for an object that has more than `JSON_NAMES_MAX` names, or one name twice: two readers of the
    document may take different values for it. And for one that is nested deeper than `JSON_DEPTH_MAX`: code that walks
    or formats it later needs no bound of its own.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=number, parse_int=number
        )
    except RecursionError:
        raise ValueError(f"it is nested deeper than {JSON_DEPTH_MAX} arrays and objects") from None
    if text.count("[") + text.count("{") > JSON_DEPTH_MAX:
        _check_depth(value)
    return value


def why_no_json(error: ValueError) -> str:
    """What is wrong with text that `parse_json` or a codec refuses, in words of JSON and not of Python."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.object[error.start]:#04x} at position {error.start} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return f"{shown(error.object[error.start])} is half of a surrogate pair, which is no text"
    if isinstance(error, json.JSONDecodeError):
        if error.doc.startswith("\ufeff"):
            return "it begins with a byte order mark: leave that out"
        return f"{error.msg} in line {error.lineno}, column {error.colno}"
    if "set_int_max_str_digits" in str(error):
        return "a number has thousands of digits"
    return str(error)


def _check_depth(value: Any) -> None:
    level: list[Any] = [[value]]
    for _ in range(JSON_DEPTH_MAX + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {JSON_DEPTH_MAX} arrays and objects")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > JSON_NAMES_MAX:
        raise ValueError(f"an object has {len(pairs)} names: at most {JSON_NAMES_MAX} are allowed")
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"an object has the name {shown(twice)} twice: give each name once")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def counted(count: int, noun: str) -> str:
    """Such as `1 record`, `2,000 records` and `2 batches`."""
    return f"{count:,} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def bytes_text(count: int) -> str:
    """A number of bytes in its unit."""
    size, unit = float(count), 0
    while size >= KIB and unit < len(_UNITS) - 1:
        size, unit = size / KIB, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


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
