"""What an Avro schema lets few bytes claim: a reader of values must not trust who wrote them, nor each schema's author.

- An array whose items take no bytes may claim 2**62 of them in ten bytes. Such a schema is refused.
- A schema that holds itself lets each byte of a value go one level deeper. fastavro's compiled reader ends the process
  at some thousand levels, so the values of such a schema are read in Python, which raises RecursionError.
"""

import io
from collections.abc import Callable, Mapping
from typing import Any

_NAMED = "__named_schemas"  # of a schema that fastavro has parsed: the named types by their full names


def avro_reader(parsed: Any) -> Callable[[bytes, Any], Any]:
    """A function that reads a value of this schema, resolved to another one, or as it is for None.

    It raises ValueError for bytes behind the value, and what fastavro and Python's own operations raise. It is about
    ten times slower for a schema that holds itself.
    """
    import fastavro

    read: Callable[..., Any] = fastavro.schemaless_reader
    if _may_hold_itself(parsed):
        from fastavro import _read_py

        read = _read_py.schemaless_reader

    def read_all(data: bytes, reader: Any) -> Any:
        buffer = io.BytesIO(data)
        value = read(buffer, parsed, reader)
        if buffer.tell() != len(data):
            raise ValueError(f"{len(data) - buffer.tell()} bytes follow the Avro value: its schema is another one")
        return value

    return read_all


def _may_hold_itself(parsed: Any) -> bool:
    try:
        return _Shape(parsed).holds_itself(parsed)
    except RecursionError:
        return True


def check_items(parsed: Any) -> None:
    """Raises ValueError for an array whose items take no bytes."""
    _Shape(parsed).check_items(parsed)


class _Shape:
    """Walks a parsed schema. Each named type is entered once."""

    def __init__(self, parsed: Any) -> None:
        self._named: dict[str, Any] = dict(parsed.get(_NAMED, {})) if isinstance(parsed, Mapping) else {}
        self._open: set[str] = set()
        self._done: set[str] = set()

    def holds_itself(self, schema: Any) -> bool:
        """True if a type is met within itself."""
        schema, name = self._found(schema)
        if name is None:
            return any(map(self.holds_itself, _inner(schema)))
        if name in self._open or name in self._done:
            return name in self._open
        self._open.add(name)
        found = any(map(self.holds_itself, _inner(schema)))
        self._open.remove(name)
        self._done.add(name)
        return found

    def check_items(self, schema: Any) -> None:
        """See the function of this name."""
        schema, name = self._found(schema)
        if name in self._done:
            return
        if name is not None:
            self._done.add(name)
        if isinstance(schema, Mapping) and schema.get("type") == "array" and not self._takes_bytes(schema["items"], ()):
            raise ValueError("an array's items take no bytes: a few bytes could claim any number of them")
        for each in _inner(schema):
            self.check_items(each)

    def _takes_bytes(self, schema: Any, above: tuple[str, ...]) -> bool:
        schema, name = self._found(schema)
        if not isinstance(schema, Mapping):
            return bool(schema != "null")  # a union has a byte for its choice
        if name is not None:
            within = (*above, name)
            return name in above or any(self._takes_bytes(each["type"], within) for each in schema["fields"])
        if schema["type"] == "fixed":
            return bool(schema["size"])
        return schema["type"] in ("array", "map", "enum") or self._takes_bytes(schema["type"], above)

    def _found(self, schema: Any) -> tuple[Any, str | None]:
        """The schema behind a name, and the name if it is a record's."""
        found = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if not isinstance(found, Mapping) or found.get("type") not in ("record", "error"):
            return found, None
        name = str(found["name"])
        self._named.setdefault(name, found)
        return found, name


def _inner(schema: Any) -> list[Any]:
    """The schemas in a schema."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, Mapping):
        return []
    if schema.get("type") in ("record", "error"):
        return [each["type"] for each in schema["fields"]]
    return [schema[each] for each in ("items", "values") if each in schema] or _of_type(schema.get("type"))


def _of_type(kind: Any) -> list[Any]:
    return [kind] if isinstance(kind, (list, Mapping)) else []
