"""The part of JSON Schema that docs/openapi.json uses. A keyword that it does not know fails the test."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_WORDS = {"title", "description", "default", "examples", "format"}  # which allow and refuse nothing here


def mistakes(schema: Any, value: Any, document: Mapping[str, Any], where: str = "$") -> list[str]:
    """What the value has that the schema forbids, or lacks that it asks for: one line each. Empty: it conforms."""
    return list(_mistakes(schema, value, document, where))


def _mistakes(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{where}: nothing may be here"
        return
    for keyword, rule in schema.items():
        if keyword in _WORDS or keyword == "then":
            continue
        if keyword in _NESTED:
            yield from _NESTED[keyword](schema, value, document, where)
        elif not _PLAIN[keyword](rule, value):
            yield f"{where}: {value!r:.200} breaks {keyword} {rule!r:.200}"


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _when(kind: type | tuple[type, ...], holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A rule of one kind of value lets all other kinds pass."""
    return lambda rule, value: not isinstance(value, kind) or isinstance(value, bool) or holds(rule, value)


_PLAIN: Mapping[str, Callable[[Any, Any], bool]] = {
    "type": _is,
    "enum": lambda rule, value: value in rule,
    "const": lambda rule, value: bool(value == rule),
    "minimum": _when((int, float), lambda rule, value: bool(value >= rule)),
    "maximum": _when((int, float), lambda rule, value: bool(value <= rule)),
    "exclusiveMaximum": _when((int, float), lambda rule, value: bool(value < rule)),
    "minLength": _when(str, lambda rule, value: len(value) >= rule),
    "maxLength": _when(str, lambda rule, value: len(value) <= rule),
    "pattern": _when(str, lambda rule, value: re.search(rule.replace("$", r"\Z"), value) is not None),
    "minItems": _when(list, lambda rule, value: len(value) >= rule),
    "maxItems": _when(list, lambda rule, value: len(value) <= rule),
    "maxProperties": _when(dict, lambda rule, value: len(value) <= rule),
    "required": _when(dict, lambda rule, value: set(rule) <= value.keys()),
}


def _named(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    found: Any = document
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    yield from _mistakes(found, value, document, where)


def _properties(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in schema["properties"].keys() & value.keys():
            yield from _mistakes(schema["properties"][name], value[name], document, f"{where}.{name}")


def _other_properties(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in value.keys() - schema.get("properties", {}).keys():
            yield from _mistakes(schema["additionalProperties"], value[name], document, f"{where}.{name}")


def _property_names(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    for name in value if isinstance(value, dict) else ():
        yield from _mistakes(schema["propertyNames"], name, document, f"{where}, the name {name}")


def _items(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    first = len(schema.get("prefixItems", ()))
    for index, each in enumerate(value[first:] if isinstance(value, list) else (), first):
        yield from _mistakes(schema["items"], each, document, f"{where}[{index}]")


def _first_items(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    for index, (rule, each) in enumerate(
        zip(schema["prefixItems"], value if isinstance(value, list) else (), strict=False)
    ):
        yield from _mistakes(rule, each, document, f"{where}[{index}]")


def _all_of(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    for each in schema["allOf"]:
        yield from _mistakes(each, value, document, where)


def _any_of(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    found = [mistakes(each, value, document, where) for each in schema["anyOf"]]
    if all(found):
        yield min(found, key=len)[0]


def _one_of(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    found = sum(not mistakes(each, value, document, where) for each in schema["oneOf"])
    if found != 1:
        yield f"{where}: {value!r:.200} fits {found} of {schema['oneOf']!r:.200}, not one"


def _not(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    if not mistakes(schema["not"], value, document, where):
        yield f"{where}: {value!r:.200} fits {schema['not']!r:.200}, which it must not"


def _if(schema: Any, value: Any, document: Mapping[str, Any], where: str) -> Iterator[str]:
    if not mistakes(schema["if"], value, document, where):
        yield from _mistakes(schema["then"], value, document, where)


_NESTED: Mapping[str, Callable[[Any, Any, Mapping[str, Any], str], Iterator[str]]] = {
    "$ref": _named,
    "properties": _properties,
    "additionalProperties": _other_properties,
    "propertyNames": _property_names,
    "items": _items,
    "prefixItems": _first_items,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
