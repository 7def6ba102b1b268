"""The parts that all expressions share: tokens, placeholders, paths, and checks of the values behind placeholders.

```
path = name ("." name | "[" digits "]")*
name = a letter, then letters, digits and "_"; or "#" and a placeholder
```
A compiled expression takes the item, the names behind `#name`, and the values behind `:value`. So calls whose names and
values differ share it. Syntax that the modules here do not list is refused, also where DynamoDB would take it.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock_core.limits import EXPRESSION_BYTES_MAX, EXPRESSION_OPERATORS_MAX
from penstock_service.adapters.tables.reserved_words import RESERVED_WORDS
from penstock_service.adapters.tables.values import invalid

Item = Mapping[str, Any]
Names = Mapping[str, str]
Values = Mapping[str, Any]
Path = tuple[str | int, ...]  # names as written, and positions in lists
Evaluate = Callable[[Item, Names, Values], Any]
Check = Callable[[Values], None]

PLACEHOLDER_BYTES_MAX = 255
_TOKEN = re.compile(r"\s*(<=|>=|<>|[=<>+\-(),.\[\]]|[#:][A-Za-z0-9_]+|[A-Za-z][A-Za-z0-9_]*|[0-9]+)")
_KEYWORDS = {"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression: the placeholders that it uses, and checks of the values behind them."""

    names: frozenset[str]
    values: frozenset[str]
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A path, a value, or `size` of a path. `path` and `value` are as written."""

    evaluate: Evaluate
    path: Path | None = None
    value: str | None = None


class Parser:
    """Takes one expression apart. `kind` is the parameter's name, such as ConditionExpression."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        if not text:
            raise self.refusal("The expression can not be empty;")
        if len(text.encode()) > EXPRESSION_BYTES_MAX:
            raise self.refusal("Expression size has exceeded the maximum allowed size;")
        self.names: set[str] = set()
        self.values: set[str] = set()
        self.checks: list[Check] = []
        self.roots: set[str] = set()
        self.operators = 0
        self._tokens = self._split(text)
        self._at = 0

    def facts(self) -> dict[str, Any]:
        """The members of Expression. Raises ValidationException if something is left, or operators are too many."""
        if self._at < len(self._tokens):
            raise self.unexpected()
        if self.operators > EXPRESSION_OPERATORS_MAX:
            raise self.refusal(f"The expression contains too many operators; operator count: {self.operators}")
        return {"names": frozenset(self.names), "values": frozenset(self.values), "checks": tuple(self.checks)}

    def refusal(self, why: str) -> Exception:
        """The error for an expression that DynamoDB would not take."""
        return invalid(f"Invalid {self.kind}: {why}")

    def unexpected(self) -> Exception:
        """The error for the next token."""
        near = " ".join(self._tokens[max(0, self._at - 1) : self._at + 2])
        return self.refusal(f'Syntax error; token: "{self.peek() or "<EOF>"}", near: "{near}"')

    def peek(self, ahead: int = 0) -> str:
        """The next token, or one behind it. "" at the end."""
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        """Takes the next token, which must be `wanted`."""
        token = self.peek()
        if not token or (wanted is not None and token.upper() != wanted):
            raise self.unexpected()
        self._at += 1
        return token

    def took(self, *wanted: str) -> bool:
        """Takes the next token if it is one of `wanted`."""
        if self.peek().upper() not in wanted:
            return False
        self._at += 1
        return True

    def count(self) -> None:
        """Counts an operator or a function."""
        self.operators += 1

    def value(self) -> str:
        """Takes the placeholder of a value."""
        if not self.peek().startswith(":"):
            raise self.unexpected()
        name = self.take()
        self.values.add(name)
        return name

    def value_operand(self) -> Operand:
        """Takes the placeholder of a value, as an operand."""
        name = self.value()
        return Operand(lambda _item, _names, values: values[name], value=name)

    def path(self) -> Path:
        """Takes a path."""
        parts: list[str | int] = [self._name()]
        self.roots.add(str(parts[0]))
        while True:
            if self.took("."):
                parts.append(self._name())
            elif self.took("["):
                if not self.peek().isdecimal():
                    raise self.unexpected()
                parts.append(int(self.take()))
                self.take("]")
            else:
                return tuple(parts)

    def check_kind(self, function: str, operand: Operand, kinds: frozenset[str]) -> None:
        """Lets each call check that a value is of one of these kinds."""
        if operand.value is not None:
            self.checks.append(partial(self._check_kind, function, operand.value, kinds))

    def _check_kind(self, function: str, name: str, kinds: frozenset[str], values: Values) -> None:
        kind = next(iter(values[name]))
        if kind not in kinds:
            raise self.refusal(
                "Incorrect operand type for operator or function; "
                f"operator or function: {function}, operand type: {kind}"
            )

    def _name(self) -> str:
        name = self.peek()
        if name.startswith("#"):
            self.names.add(name)
        elif not name[:1].isalpha() or name.upper() in _KEYWORDS:
            raise self.unexpected()
        elif name.upper() in RESERVED_WORDS:
            raise self.refusal(f"Attribute name is a reserved keyword; reserved keyword: {name}")
        return self.take()

    def _split(self, text: str) -> list[str]:
        tokens: list[str] = []
        text, at = text.rstrip(), 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.refusal(f'Syntax error; token: "{text[at : at + 1]}", near: "{text[at : at + 10]}"')
            tokens.append(found[1])
            at = found.end()
        if any(len(each) > PLACEHOLDER_BYTES_MAX for each in tokens if each[0] in "#:"):
            raise self.refusal(f"a placeholder has {PLACEHOLDER_BYTES_MAX} bytes at most")
        return tokens


def getter(path: Path) -> Evaluate:
    """A function that finds the value at the path. None if there is none."""
    first, rest = str(path[0]), path[1:]
    if not rest:
        if first.startswith("#"):
            return lambda item, names, _: item.get(names[first])
        return lambda item, _names, _values: item.get(first)

    def get(item: Item, names: Names, _: Values) -> Any:
        found = item.get(names.get(first, first))
        for part in rest:
            if found is None:
                return None
            if isinstance(part, int):
                elements = found.get("L", ())
                found = elements[part] if part < len(elements) else None
            else:
                found = found.get("M", {}).get(names.get(part, part))
        return found

    return get
