"""Expressions taken apart as a mutation needs it. The tables in memory check the syntax of the results.

The text of a part is *normal* if placeholders and positions in it have no counters: `#l.#n3 = :v7` is `#l.#n = :v`. So
all texts of one template in the sources have the same normal parts.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_WORD = re.compile(r"\(|\)|,|\b(?:AND|OR|BETWEEN|SET|REMOVE|ADD|DELETE)\b")
_COUNTER = re.compile(r"(?<=[#:])([a-z]+)[0-9]+(o?)\b|(?<=\[)[0-9]+(?=\])")


@dataclass(frozen=True, slots=True)
class Part:
    """A comparison, a function, or a conjunction or disjunction (`word`) of parts. `text` is as written."""

    text: str
    word: str = ""
    parts: tuple["Part", ...] = ()

    @property
    def normal(self) -> str:
        """The text without counters."""
        return normal(self.text)


def normal(text: str) -> str:
    """The text without counters of placeholders, and without positions in lists."""
    return _COUNTER.sub(r"\1\2", text)


def parse_condition(text: str) -> Part:
    """A condition, a filter, or a condition on keys as a tree."""
    text = _bare(text)
    for word in ("OR", "AND"):
        texts = _split(text, word)
        if len(texts) > 1:
            parts = [parse_condition(each) for each in texts]
            flat = [inner for each in parts for inner in (each.parts if each.word == word else (each,))]
            return Part(text, word, tuple(flat))
    return Part(text)


def walk(part: Part, parent: str = "") -> Iterator[tuple[Part, str]]:
    """Each part below, with the word that joins it to its neighbours; "" for the whole condition."""
    yield part, parent
    for each in part.parts:
        yield from walk(each, part.word)


def rewritten(part: Part, change: Callable[[Part, str], str | bool | None], parent: str = "") -> str | bool:
    """The condition with each part changed by `change`: to a text, to True or False, or not at all (None).

    True and False stand for a condition that always or never holds.
    """
    changed = change(part, parent)
    if changed is not None:
        return changed
    if not part.parts:
        return part.text
    neutral = part.word == "AND"
    found = [rewritten(each, change, part.word) for each in part.parts]
    if (not neutral) in found:
        return not neutral
    texts = [each for each in found if isinstance(each, str)]
    if not texts:
        return neutral
    joined = f" {part.word} ".join(texts)
    return f"({joined})" if parent == "AND" and len(texts) > 1 and part.word == "OR" else joined


def parse_update(text: str) -> list[tuple[str, list[str]]]:
    """The sections of an update, each with its verb and its clauses."""
    sections: list[tuple[str, list[str]]] = []
    start = 0
    for found in [*_WORD.finditer(text), None]:
        if found is not None and found[0] not in ("SET", "REMOVE", "ADD", "DELETE"):
            continue
        end = len(text) if found is None else found.start()
        if sections:
            sections[-1][1].extend(each.strip() for each in _split(text[start:end], ","))
        if found is not None:
            sections.append((found[0], []))
            start = found.end()
    return sections


def update_text(sections: list[tuple[str, list[str]]]) -> str:
    """The inverse of `parse_update`. Without any clause, an update that changes nothing."""
    return " ".join(f"{verb} {', '.join(each)}" for verb, each in sections if each) or "REMOVE mutant_of_nothing"


def _split(text: str, separator: str) -> list[str]:
    """The text split where the separator is in no parentheses. The AND of a BETWEEN is none."""
    found: list[str] = []
    start = depth = between = 0
    for each in _WORD.finditer(text):
        depth += {"(": 1, ")": -1}.get(each[0], 0)
        if depth:
            continue
        if each[0] == "BETWEEN":
            between += 1
        elif each[0] == "AND" and between:
            between -= 1
        elif each[0] == separator:
            found.append(text[start : each.start()].strip())
            start = each.end()
    return [*found, text[start:].strip()]


def _bare(text: str) -> str:
    """The text without parentheses around all of it."""
    text = text.strip()
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closing(text: str) -> int:
    depth = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return at
    raise ValueError(f"a parenthesis stays open: {text}")
