"""The prose of a file, cut into passages: paragraphs and list items of Markdown, docstrings and comments.

A passage keeps the line breaks of its source, so the line of each sentence can be told. Left out are code, tables,
drawings, headings, link targets, HTML tags and comments, and comments that steer tools (`# noqa`).
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter

from tools.sources import statements

CODE = "⟦code⟧"  # stands for inline code: one word, which may begin a sentence and has no dots

_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"\s*(#{1,6}\s|(=|-|\*|_){3,}\s*$)")
_TABLE = re.compile(r"\s*\|")
_DRAWING = re.compile(r"[─│┌┐└┘├┤┬┴┼═║╔╗╚╝▶◀▲▼╭╮╰╯]|-->|<--|\S {3,}\S|\S {2,}\S.*\S {2,}\S")
_ITEM = re.compile(r"(\s*)([-*+]|\d{1,3}[.)])\s+")
_REFERENCE = re.compile(r"\s*\[[^\]]+\]:\s")
_LABEL = re.compile(r"\*\*[^*\n]{1,40}\*\*[.:]?(?=\s|$)")
_EMPHASIS = re.compile(r"\*\*|__(?=\w)|(?<=\w)__|(?<![\w*])\*(?=\S)|(?<=\S)\*(?![\w*])|(?<!\w)_(?=\w)|(?<=\w)_(?!\w)")
_PRAGMA = re.compile(r"!|-\*-|(type|mypy|ruff|pragma|fmt|noqa|pyright)\b:?|isort:", re.IGNORECASE)


# A `#` inside of a string begins no comment. `tokenize` knows that, too, and takes six times as long.
_STRING_OR_COMMENT = re.compile(
    r"""(?P<quotes>\"{3}|'{3})(?:\\.|.)*?(?P=quotes)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)


class Kind(StrEnum):
    """The kind of text that holds a passage."""

    TEXT = "text"
    DOCSTRING = "docstring"
    COMMENT = "comment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One paragraph, list item or comment, without markup.

    `line` is the number of its first line, from 1. `is_summary` marks the first passage of a docstring.
    """

    line: int
    text: str
    kind: Kind
    is_summary: bool = False


def markdown_passages(source: str) -> Iterator[Passage]:
    """The passages of a Markdown file. Front matter (between `---` lines at the top) is left out."""
    front_matter = re.match(r"---\n.*?\n---\n", source, re.DOTALL)
    if front_matter:
        source = _blank(front_matter) + source[front_matter.end() :]
    yield from _passages(re.sub(r"<!--.*?-->", _blank, source, flags=re.DOTALL), 1, Kind.TEXT)


def python_passages(source: str) -> Iterator[Passage]:
    """The passages of a Python file: docstrings, also those below an attribute, and then the comments."""
    for docstring, line in sorted(_docstrings(source), key=itemgetter(1)):
        yield from _passages(docstring, line, Kind.DOCSTRING)
    for comment, line in _comments(source):
        yield from _passages(comment, line, Kind.COMMENT)


def _docstrings(source: str) -> Iterator[tuple[str, int]]:
    for node in statements(source):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring)), lineno=line):
                yield _dedented(docstring), line


def _dedented(docstring: str) -> str:
    """The docstring as `inspect.cleandoc` gives it, but with each line where it was."""
    first, *rest = docstring.expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return "\n".join([first.lstrip(), *(line[margin:] for line in rest)])


def _comments(source: str) -> Iterator[tuple[str, int]]:
    """Comment blocks: neighbouring lines that hold nothing else, or the comment behind a line of code."""
    block: list[str] = []
    first = last = column = counted = 0
    row = 1
    for token in _STRING_OR_COMMENT.finditer(source):
        if token["comment"] is None:
            continue
        text = token[0].lstrip("#").removeprefix(" ").rstrip()
        row += source.count("\n", counted, token.start())
        counted = token.start()
        start = counted - (source.rfind("\n", 0, counted) + 1)
        alone = not source[counted - start : counted].strip()
        if _PRAGMA.match(text):
            continue
        if block and alone and row == last + 1 and start == column:
            block.append(text)
        else:
            if block:
                yield "\n".join(block), first
            block, first, column = [text], row, start if alone else -1
        last = row
    if block:
        yield "\n".join(block), first


def _passages(text: str, line: int, kind: Kind) -> Iterator[Passage]:
    for start, lines in _blocks(text.split("\n")):
        plain = _without_markup("\n".join(lines))
        if plain.strip():
            yield Passage(line=line + start, text=plain, kind=kind, is_summary=kind is Kind.DOCSTRING and start == 0)


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Paragraphs and list items with the index of their first line. Any other line ends a block."""
    block: list[str] = []
    start = 0
    fence = ""
    in_item = after_blank = False
    for number, line in enumerate(lines):
        opening = _FENCE.match(line)
        if opening and fence in ("", opening[1]):
            fence = "" if fence else opening[1]
        indented = line.startswith("    ") and not in_item
        ends = bool(
            opening
            or fence
            or not line.strip()
            or _TABLE.match(line)
            or _HEADING.match(line)
            or _REFERENCE.match(line)
            or line.lstrip().startswith(">>>")
            or _DRAWING.search(line.strip())
            or (indented and (after_blank or not block))
        )
        item = None if ends else _ITEM.match(line)
        if block and (ends or item):
            yield start, block
            block = []
        if not ends:
            if not block:
                start = number
            block.append((line[item.end() :] if item else line).strip())
        in_item = bool(item) or (in_item and (not line.strip() or line.startswith("  ")))
        after_blank = not line.strip() or (ends and after_blank)
    if block:
        yield start, block


def _without_markup(text: str) -> str:
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda code: CODE + _blank(code), text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])", _blank, text)
    text = re.sub(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", lambda link: link[1] + _blank(link[2]), text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>", _blank, text)
    text = _LABEL.sub("", text, count=1) if text.startswith("**") else text
    text = re.sub(r"^>\s?(\[![A-Z]+\])?", "", text, flags=re.MULTILINE)
    return _EMPHASIS.sub("", text)


def _blank(removed: re.Match[str] | str) -> str:
    """The line breaks of what is removed, so that all behind it keeps its line."""
    return "\n" * (removed if isinstance(removed, str) else removed[0]).count("\n")
