"""UpdateExpressions, each compiled once.

```
update   = ("SET" set ("," set)* | "REMOVE" path ("," path)* | "ADD" add ("," add)* | "DELETE" add ("," add)*)+
set      = path "=" operand [("+" | "-") operand]
add      = name ":value"
operand  = path | ":value" | "if_not_exists" "(" path "," operand ")" | "list_append" "(" operand "," operand ")"
```
An update makes a new item: it copies the maps and lists on the way to what it changes, and shares all others with the
old item. Each value is that of the old item, and positions in lists are those in the old lists.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock_core.storage.item import COLLECTION_ELEMENT_BYTES, value_bytes
from penstock_service.adapters.tables.parser import (
    Evaluate,
    Expression,
    Item,
    Names,
    Operand,
    Parser,
    Path,
    Values,
    getter,
)
from penstock_service.adapters.tables.values import SETS, Value, invalid, summed, united

_NUMBER, _LIST = frozenset({"N"}), frozenset({"L"})
_WRONG_KIND = "An operand in the update expression has an incorrect data type"
_NO_ATTRIBUTE = "The provided expression refers to an attribute that does not exist in the item"
_NO_PLACE = "The document path provided in the update expression is invalid for update"

Action = tuple[Path, Evaluate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Expression):
    """A compiled update. `paths` are all that it changes, as written, in their order."""

    sets: Sequence[Action]  # the lowest positions in lists first
    removes: Sequence[Action]  # the highest ones first
    paths: Sequence[Path]
    has_named_paths: bool

    def applied(self, old: Item, size: int, names: Names, values: Values) -> tuple[dict[str, Any], int]:
        """The item after the update, and its size. `size` is that of the old one. Raises ValidationException."""
        change = _Change(dict(old), size)
        for path, evaluate in self.sets:
            value = evaluate(old, names, values)
            if value is None:
                change.remove(path, names)
            else:
                change.put(path, names, value)
        for path, exists in self.removes:
            change.remove(path, names, is_there=exists(old, names, values) is not None)
        return change.item, change.size

    def check_paths(self, names: Names, keys: Iterable[str]) -> None:
        """Checks that no path is a key's, and that no path is part of another one. Raises ValidationException."""
        paths = [
            tuple(names.get(part, part) if isinstance(part, str) else part for part in path) for path in self.paths
        ]
        for key in keys:
            if any(path[0] == key for path in paths):
                raise invalid(
                    f"One or more parameter values were invalid: Cannot update attribute {key}. "
                    "This attribute is part of the key"
                )
        holders: dict[Path, type] = {}
        for path in paths:
            for length in range(1, len(path)):
                kind = type(path[length])
                if holders.setdefault(path[:length], kind) is not kind:
                    raise _refusal("Two document paths conflict with each other;", path)
        if len({*paths}) < len(paths):
            raise _refusal("Two document paths overlap with each other;", paths[-1])
        for path in paths:
            if path in holders:
                raise _refusal("Two document paths overlap with each other;", path)


class _Change:
    """The new item as it comes about."""

    def __init__(self, item: dict[str, Any], size: int) -> None:
        self.item = item
        self.size = size
        self._own: set[int] = set()  # ids of maps and lists that are new here

    def put(self, path: Path, names: Names, value: Value) -> None:
        holder, overhead = self._holder(path, names), COLLECTION_ELEMENT_BYTES if len(path) > 1 else 0
        last = path[-1]
        if isinstance(last, int):
            if last < len(holder):
                self.size += _growth(holder[last], value)
                holder[last] = value
            else:
                self.size += overhead + value_bytes(value)
                holder.append(value)
            return
        name = names.get(last, last)
        if name in holder:
            self.size += _growth(holder[name], value)
        else:
            self.size += overhead + len(name.encode()) + value_bytes(value)
        holder[name] = value

    def remove(self, path: Path, names: Names, *, is_there: bool = True) -> None:
        holder, overhead = self._holder(path, names), COLLECTION_ELEMENT_BYTES if len(path) > 1 else 0
        if not is_there:
            return
        last = path[-1]
        if isinstance(last, int):
            self.size -= overhead + value_bytes(holder.pop(last))
            return
        name = names.get(last, last)
        if name in holder:
            self.size -= overhead + len(name.encode()) + value_bytes(holder.pop(name))

    def _holder(self, path: Path, names: Names) -> Any:
        """The map or list that holds the path's last part, as a copy that this change may write to."""
        holder: Any = self.item
        for part, next_part in pairwise(path):
            key: Any = names.get(part, part) if isinstance(part, str) else part
            found = _at(holder, key)
            kind = "L" if isinstance(next_part, int) else "M"
            content = None if found is None else found.get(kind)
            if content is None:
                raise invalid(_NO_PLACE)
            if id(content) not in self._own:
                content = content.copy()
                self._own.add(id(content))
                holder[key] = {kind: content}
            holder = content
        return holder


class _UpdateParser(Parser):
    def __init__(self, text: str) -> None:
        super().__init__("UpdateExpression", text)
        self.sets: list[Action] = []
        self.removes: list[Action] = []
        self.paths: list[Path] = []

    def update(self) -> Update:
        clauses: Mapping[str, Callable[[], None]] = {
            "SET": self._set,
            "REMOVE": self._remove,
            "ADD": lambda: self._add("ADD", _added, _NUMBER | SETS),
            "DELETE": lambda: self._add("DELETE", _without, SETS),
        }
        seen: set[str] = set()
        while clause := self.peek().upper():
            if clause not in clauses:
                raise self.unexpected()
            if clause in seen:
                raise self.refusal(f'The "{clause}" section can only be used once in an update expression;')
            seen.add(clause)
            self.take()
            clauses[clause]()
            while self.took(","):
                clauses[clause]()
        return Update(
            **self.facts(),
            sets=sorted(self.sets, key=_position),
            removes=sorted(self.removes, key=_position, reverse=True),
            paths=self.paths,
            has_named_paths=any(str(part).startswith("#") for path in self.paths for part in path),
        )

    def _target(self) -> Path:
        path = self.path()
        self.paths.append(path)
        return path

    def _set(self) -> None:
        path = self._target()
        self.take("=")
        operand = self.update_operand()
        evaluate = operand.evaluate
        if self.peek() in ("+", "-"):
            self.count()
            sign = self.take()
            other = self.update_operand()
            for each in (operand, other):
                self.check_kind(sign, each, _NUMBER)
            evaluate = _sum(evaluate, other.evaluate, 1 if sign == "+" else -1)
        self.sets.append((path, evaluate))

    def _remove(self) -> None:
        path = self._target()
        self.removes.append((path, getter(path)))

    def _add(self, clause: str, combine: Callable[[Value | None, Value], Value | None], kinds: frozenset[str]) -> None:
        path = self._target()
        if len(path) > 1:
            raise self.refusal(f"{clause} takes top-level attributes only")
        name, get = self.value(), getter(path)
        self.check_kind(clause, Operand(get, value=name), kinds)
        self.sets.append((path, lambda item, names, values: combine(get(item, names, values), values[name])))

    def update_operand(self) -> Operand:
        """Takes an operand of SET. Its function raises ValidationException if there is no value."""
        if self.peek(1) == "(":
            function = self.take()
            if function not in ("if_not_exists", "list_append"):
                raise self.refusal(f"Invalid function name; function: {function}")
            self.count()
            self.take("(")
            evaluate = self._default() if function == "if_not_exists" else self._concatenation()
            self.take(")")
            return Operand(evaluate)
        if self.peek().startswith(":"):
            return self.value_operand()
        path = self.path()
        return Operand(_needed(getter(path)), path=path)

    def _default(self) -> Evaluate:
        if self.peek().startswith(":"):
            raise self.refusal("Operator or function requires a document path; operator or function: if_not_exists")
        get = getter(self.path())
        self.take(",")
        default = self.update_operand().evaluate

        def evaluate(item: Item, names: Names, values: Values) -> Any:
            found = get(item, names, values)
            return default(item, names, values) if found is None else found

        return evaluate

    def _concatenation(self) -> Evaluate:
        one = self.update_operand()
        self.take(",")
        other = self.update_operand()
        for each in (one, other):
            self.check_kind("list_append", each, _LIST)
        first, second = one.evaluate, other.evaluate

        def evaluate(item: Item, names: Names, values: Values) -> Any:
            left, right = first(item, names, values), second(item, names, values)
            try:
                return {"L": left["L"] + right["L"]}
            except KeyError:
                raise invalid(_WRONG_KIND) from None

        return evaluate


def compile_update(text: str) -> Update:
    """An UpdateExpression. Raises ValidationException."""
    return _UpdateParser(text).update()


def _growth(old: Value, new: Value) -> int:
    """The bytes that `new` has more than `old`. A longer list shares its first elements with the old one."""
    if "L" not in old or "L" not in new:
        return value_bytes(new) - value_bytes(old)
    shared = 0
    for one, other in zip(old["L"], new["L"], strict=False):
        if one is not other:
            break
        shared += 1
    return value_bytes({"L": new["L"][shared:]}) - value_bytes({"L": old["L"][shared:]})


def _position(action: Action) -> int:
    last = action[0][-1]
    return last if isinstance(last, int) else -1


def _at(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return holder.get(key)
    return holder[key] if key < len(holder) else None


def _needed(get: Evaluate) -> Evaluate:
    def evaluate(item: Item, names: Names, values: Values) -> Any:
        found = get(item, names, values)
        if found is None:
            raise invalid(_NO_ATTRIBUTE)
        return found

    return evaluate


def _sum(left: Evaluate, right: Evaluate, sign: int) -> Evaluate:
    def evaluate(item: Item, names: Names, values: Values) -> Any:
        one, other = left(item, names, values), right(item, names, values)
        if "N" not in one or "N" not in other:
            raise invalid(_WRONG_KIND)
        return summed(one, other, sign)

    return evaluate


def _added(old: Value | None, added: Value) -> Value:
    if old is None:
        return added
    [(kind, content)] = added.items()
    if kind not in old:
        raise invalid(_WRONG_KIND)
    return summed(old, added, 1) if kind == "N" else united(kind, old[kind], content)


def _without(old: Value | None, removed: Value) -> Value | None:
    """None if no element is left: a set is never empty."""
    [(kind, content)] = removed.items()
    if old is None:
        return None
    if kind not in old:
        raise invalid(_WRONG_KIND)
    left = [each for each in old[kind] if each not in content]
    return {kind: left} if left else None


def _refusal(why: str, path: Path) -> Exception:
    return invalid(f"Invalid UpdateExpression: {why} must remove or rewrite one of these paths; path: {[*path]}")
