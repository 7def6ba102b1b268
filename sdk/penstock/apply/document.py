"""A document of YAML or JSON as nodes that know their lines, so that an error names the line.

JSON needs no library. YAML needs PyYAML (`penstock[apply]`). Anchors, aliases and merge keys (`<<`) work.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_core.errors import shown
from penstock_core.limits import APPLY_DEPTH_MAX, APPLY_FILE_BYTES_MAX, APPLY_NODES_MAX

_TOKEN = re.compile(r'\s*([\[\]{},:]|"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+)')
_YAML = "tag:yaml.org,2002:"
_TAGS = (f"{_YAML}map", f"{_YAML}seq")
_SCALARS = ("bool", "int", "float", "null")
_NUMBERS = {
    "int": re.compile(r"[-+]?(0|[1-9][0-9]{0,19})", re.ASCII),
    "float": re.compile(r"[-+]?[0-9]{1,20}\.[0-9]{0,20}", re.ASCII),
}
_NO_YAML = "YAML needs PyYAML: pip install 'penstock[apply]', or write the file as JSON"


class DocumentError(Exception):
    """The text is no document. `line` is where, from 1; 0 for the whole file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a dict of nodes by name, or a list of nodes, and the line on which it begins."""

    value: Any
    line: int

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: each.plain() for name, each in self.value.items()}
        return [each.plain() for each in self.value] if isinstance(self.value, list) else self.value


def read_document(path: Path) -> Node:
    """The document of a file: JSON where its name ends in .json, else YAML. Raises DocumentError."""
    try:
        with path.open("rb") as file:
            data = file.read(APPLY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise DocumentError(0, f"it cannot be read: {error.strerror}") from error
    if len(data) > APPLY_FILE_BYTES_MAX:
        raise DocumentError(0, f"it has more than {APPLY_FILE_BYTES_MAX:,} bytes: split it, by team for example")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(line, f"byte {data[error.start]:#04x} is not UTF-8") from error
    return parse_json_nodes(text) if path.suffix.lower() == ".json" else parse_yaml_nodes(text)


def parse_json_nodes(text: str) -> Node:
    """The document of a JSON text. Raises DocumentError."""
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=_short_int)
    except json.JSONDecodeError as error:
        raise DocumentError(error.lineno, f"it is no JSON: {error.msg} in column {error.colno}") from error
    except RecursionError as error:
        raise DocumentError(0, _too_deep()) from error
    except ValueError as error:
        raise DocumentError(0, str(error)) from error
    return _JsonNodes(text).node(0)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _short_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"the number {digits:.20}… has {len(digits)} digits")
    return int(digits)


class _JsonNodes:
    """Walks over the tokens of a text that is JSON: so each word is where it must be."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._count = 0

    def node(self, depth: int) -> Node:
        """The value that begins here."""
        word = self._next()
        self._count = _checked_count(self._count + 1, depth, self._line)
        line = self._line
        if word == "{":
            return Node(self._object(depth), line)
        if word == "[":
            return Node(self._array(depth), line)
        return Node(json.loads(word), line)

    def _object(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while (word := self._next()) != "}":
            if word == ",":
                continue
            name, line = str(json.loads(word)), self._line
            if name in found:
                raise DocumentError(line, f"{shown(name)} stands twice: give each name once")
            self._next()  # the colon
            found[name] = self.node(depth + 1)
        return found

    def _array(self, depth: int) -> list[Node]:
        found: list[Node] = []
        while (word := self._peek()) != "]":
            if word == ",":
                self._next()
            else:
                found.append(self.node(depth + 1))
        self._next()
        return found

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        assert match is not None
        return match[1]

    def _next(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        assert match is not None
        self._line += self._text.count("\n", self._at, match.end())
        self._at = match.end()
        return match[1]


def parse_yaml_nodes(text: str) -> Node:
    """The document of a YAML text. Raises DocumentError, also without PyYAML."""
    try:
        import yaml
    except ImportError as error:
        raise DocumentError(0, _NO_YAML) from error
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        return Node({}, 1) if root is None else _YamlNodes(loader).node(root, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DocumentError(0 if mark is None else mark.line + 1, f"it is no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise DocumentError(0, f"it is no YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise DocumentError(0, _too_deep()) from error


class _YamlNodes:
    """Makes nodes of PyYAML's. An alias counts as often as it is used, so no short text becomes a large document."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._count = 0

    def node(self, found: Any, depth: int) -> Node:
        line = found.start_mark.line + 1
        self._count = _checked_count(self._count + 1, depth, line)
        if found.id != "scalar" and found.tag not in _TAGS:
            raise DocumentError(line, f"it is no YAML: no tag may stand here, such as {shown(found.tag)}")
        if found.id == "sequence":
            return Node([self.node(each, depth + 1) for each in found.value], line)
        if found.id == "mapping":
            return Node(self._mapping(found, depth), line)
        self._check_scalar(found, line)
        return Node(self._loader.construct_object(found), line)

    def _check_scalar(self, found: Any, line: int) -> None:
        """Refuses what YAML 1.1 reads as another value than people do, such as 010 (8) and 24:00 (1,440)."""
        kind, text = found.tag.removeprefix(_YAML), found.value
        if kind == "str":
            return
        if kind not in _SCALARS:
            raise DocumentError(line, f"it is no YAML: {shown(text)} has the type {kind:.50}: put it in quotes")
        if self._loader.resolve(type(found), text, (True, False)) != found.tag:
            raise DocumentError(line, f"it is no YAML: {shown(text)} is no {kind}: leave out the tag")
        if kind in _NUMBERS and not _NUMBERS[kind].fullmatch(text):
            raise DocumentError(
                line,
                f"{shown(text)} is no plain decimal number: write such as 1000, a time with its unit, such as 24h, and "
                "a text in quotes",
            )

    def _mapping(self, found: Any, depth: int) -> dict[str, Node]:
        names: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in found.value:
            line = key.start_mark.line + 1
            if key.tag == f"{_YAML}merge":
                sources = value.value if value.id == "sequence" else [value]
                for source in sources:
                    inner = self.node(source, depth + 1)
                    if not isinstance(inner.value, dict):
                        raise DocumentError(line, "<<: merges mappings only")
                    merged = {**inner.value, **merged}  # the first source wins
                continue
            name = self.node(key, depth + 1).plain()
            if not isinstance(name, str):
                raise DocumentError(line, f"the name {shown(name)} is no text: put it in quotes")
            if name in names:
                raise DocumentError(line, f"{shown(name)} stands twice: give each name once")
            names[name] = self.node(value, depth + 1)
        return {**merged, **names}


def _checked_count(count: int, depth: int, line: int) -> int:
    if depth > APPLY_DEPTH_MAX:
        raise DocumentError(line, _too_deep())
    if count > APPLY_NODES_MAX:
        raise DocumentError(line, f"it has more than {APPLY_NODES_MAX:,} values, aliases counted each time: split it")
    return count


def _too_deep() -> str:
    return f"it is nested deeper than {APPLY_DEPTH_MAX} levels"


def to_yaml(document: Mapping[str, Any]) -> str:
    """The document as YAML. Raises DocumentError without PyYAML."""
    try:
        import yaml
    except ImportError as error:
        raise DocumentError(0, _NO_YAML.replace("or write the file as JSON", "or take JSON by --json")) from error
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=100))
