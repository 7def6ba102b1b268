"""Functions of the product with other code, for as long as a context manager is entered.

An edit names a function by its qualified name, and a text within it that is there once. Line breaks do not count, and
the module does not either, so a function may move. An edit that fits no function, or two, is an error.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from textwrap import dedent, indent
from types import CodeType, FunctionType
from typing import Any

_ROOT = Path(__file__).parents[3]
_FOLDERS = ("functions", "sdk", "tests/simulation/clients", "tests/simulation/workloads")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Edit:
    """The function `name` with `new` in place of `old`."""

    name: str
    old: str
    new: str


@contextmanager
def spoiled(edits: Sequence[Edit]) -> Iterator[None]:
    """Every caller meets the edited functions in the block, whichever way it has imported them."""
    with ExitStack() as stack:
        for name, of_one in groupby(edits, lambda edit: edit.name):
            function, code = _compiled(name, tuple(of_one))
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = code
        yield


@cache
def _compiled(name: str, edits: tuple[Edit, ...]) -> tuple[FunctionType, CodeType]:
    found = [(path, node, text) for path, node, source in _definitions(name) if (text := _edited(source, edits))]
    if len(found) != 1:
        raise LookupError(f"{len(found)} functions, not 1, have these texts once: {edits}")
    [(path, node, text)] = found
    function = _function(path, name)
    if free := function.__code__.co_freevars:  # a closure has cells for them
        text = f"def _():\n    {' = '.join(free)} = None\n{indent(text, '    ')}"
    tree = ast.increment_lineno(ast.parse(text), node.lineno - 1)
    return function, _code(compile(tree, path, "exec", dont_inherit=True), node.name)


def _edited(source: str, edits: Iterable[Edit]) -> str | None:
    for edit in edits:
        old = re.compile(r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", edit.old))))
        places = [*old.finditer(source)]
        if len(places) != 1:
            return None
        before, behind = source[: places[0].start()], source[places[0].end() :]
        line = before[before.rfind("\n") + 1 :]
        margin = " " * (len(line) - len(line.lstrip()))
        source = before + indent(edit.new, margin).lstrip(" ") + behind
    return dedent(source)


def _code(code: CodeType, name: str) -> CodeType:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return next((each for each in inner if each.co_name == name), None) or _code(inner[0], name)


def _definitions(name: str) -> Iterator[tuple[Path, _Definition, str]]:
    *owners, last = name.split(".")
    for path, text in _texts().items():
        if f"def {last}(" not in text:
            continue
        body: list[ast.stmt] = ast.parse(text).body
        for owner in owners:
            body = [
                each for node in body if isinstance(node, ast.ClassDef) and node.name == owner for each in node.body
            ]
        for node in body:
            if isinstance(node, _Definition) and node.name == last:
                yield path, node, "".join(text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno])


@cache
def _texts() -> dict[Path, str]:
    paths = (path for folder in _FOLDERS for path in sorted((_ROOT / folder).rglob("*.py")))
    return {path: path.read_text(encoding="utf-8") for path in paths}


def _function(path: Path, name: str) -> FunctionType:
    parts = path.relative_to(_ROOT).with_suffix("").parts
    found: Any = importlib.import_module(".".join(parts if parts[0] == "tests" else parts[1:]))
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    found = found.fget if isinstance(found, property) else inspect.unwrap(getattr(found, "__func__", found))
    assert isinstance(found, FunctionType), name
    return found
