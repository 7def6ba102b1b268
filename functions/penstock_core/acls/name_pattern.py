"""Patterns of names in rules: a whole name, or the beginning of names and a `*`."""

from collections.abc import Iterable
from dataclasses import dataclass

EVERY = "*"


@dataclass(frozen=True, slots=True, order=True)
class NamePattern:
    """`text` is the whole name, or with `is_prefix` its beginning; "" as a beginning matches all names."""

    text: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.text}{EVERY}" if self.is_prefix else self.text


def parse_name_pattern(text: str) -> NamePattern:
    """The pattern of a text, in which a `*` at the end stands for any characters, also none."""
    return NamePattern(text[:-1], is_prefix=True) if text.endswith(EVERY) else NamePattern(text)


class NamePatterns:
    """Many patterns, of which any may match. A check costs one look-up for each length of a beginning."""

    __slots__ = ("_beginnings", "_lengths", "_names")

    def __init__(self, patterns: Iterable[NamePattern]) -> None:
        known = set(patterns)
        self._names = frozenset(each.text for each in known if not each.is_prefix)
        self._beginnings = frozenset(each.text for each in known if each.is_prefix)
        self._lengths = sorted({len(each) for each in self._beginnings})

    def names(self, name: str) -> bool:
        """True if one of the patterns is the name itself."""
        return name in self._names

    def match(self, name: str) -> bool:
        """True if one of the patterns matches the name."""
        if name in self._names:
            return True
        size = len(name)
        for length in self._lengths:
            if length > size:
                return False
            if name[:length] in self._beginnings:
                return True
        return False
