"""Patterns of topic names: `*` stands for any characters, also none. Every other character stands for itself.

There are no regular expressions: the service evaluates patterns that members send, and must do it in linear time.
"""

import re

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import is_reserved
from penstock_core.limits import NAME_LENGTH_MAX

WILDCARD = "*"
PATTERN_CHARACTERS = "[A-Za-z0-9._*-]+"
_PATTERN = re.compile(PATTERN_CHARACTERS, re.ASCII)


def check_pattern(pattern: str) -> None:
    """Raises INVALID_NAME unless some topic name could match."""
    if len(pattern) > NAME_LENGTH_MAX or not _PATTERN.fullmatch(pattern):
        raise PenstockError(
            ErrorCode.INVALID_NAME,
            f"topic pattern {shown(pattern)}: use 1 to {NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ - and * for any characters",
        )


def matches(pattern: str, name: str) -> bool:
    """True if the pattern describes the whole name.

    It looks for each part of the pattern behind the end of the part before. Only its own name describes a reserved
    topic.
    """
    if is_reserved(name) and name != pattern:
        return False
    first, *others = pattern.split(WILDCARD)
    if not others:
        return name == pattern
    *middle, last = others
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    position, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
