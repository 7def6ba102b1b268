"""Mutations: what can be spoiled in an expression, and the call with it spoiled."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.mutants.expressions import Part, normal, parse_condition, parse_update, rewritten, update_text, walk

CONDITION, FILTER, KEYS, UPDATE = (
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "UpdateExpression",
)
PARAMETERS = (CONDITION, FILTER, KEYS, UPDATE)

KINDS = (
    "drop",
    "drop last",  # of several parts of the same template
    "drop low",
    "drop high",
    "shift",
    "shift low",
    "shift high",
    "turn",
    "at least",  # for equal
    "take the default of",
)

_ALWAYS = "attribute_exists(pk) OR attribute_not_exists(pk)"
_NEVER = "attribute_exists(pk) AND attribute_not_exists(pk)"
_BETWEEN = re.compile(r"(?P<left>.+) BETWEEN (?P<low>.+) AND (?P<high>.+)")
_COMPARISON = re.compile(r"(?P<left>.+?) (?P<sign><=|>=|<>|=|<|>) (?P<right>.+)")
_EXISTENCE = re.compile(r"attribute_(not_)?exists\(.*\)")
_DEFAULT = re.compile(r"if_not_exists\(([^,()]+), ([^,()]+)\)")
_SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_USED = re.compile(r"[#:][A-Za-z0-9_]+")
_SHIFTED_VALUE = ":mutant"

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Mutation:
    """One way to spoil one parameter. `clause` is the normal text of the part that it spoils."""

    parameter: str
    kind: str
    clause: str

    def __str__(self) -> str:
        return f"{self.parameter}: {self.kind} {self.clause}"


def mutations(arguments: Mapping[str, Any]) -> Iterator[Mutation]:
    """All mutations of a call, or of an action of a transaction."""
    for parameter in PARAMETERS:
        text = arguments.get(parameter)
        if text is None:
            continue
        if parameter == UPDATE:
            yield from _of_update(text)
            continue
        of_clause = _of_keys if parameter == KEYS else _of_condition
        parts = [each for each in walk(parse_condition(text)) if parameter != KEYS or not each[0].parts]
        texts = [part.normal for part, _ in parts]
        for part, parent in parts:
            for kind in of_clause(part, parent, arguments):
                yield Mutation(parameter, kind, part.normal)
                if kind == "drop" and texts.count(part.normal) > 1:
                    yield Mutation(parameter, "drop last", part.normal)


def mutated(arguments: Mapping[str, Any], mutation: Mutation) -> Arguments | None:
    """The call with the mutation. None if it has no such part."""
    text = arguments.get(mutation.parameter)
    if text is None or mutation not in {*mutations(arguments)}:
        return None
    spoiled = dict(arguments)
    if mutation.parameter == UPDATE:
        spoiled[UPDATE] = _spoiled_update(text, mutation)
    elif mutation.parameter == KEYS:
        _spoil_keys(spoiled, mutation)
    else:
        _spoil_condition(spoiled, text, mutation)
    return _pruned(spoiled)


def _of_condition(part: Part, parent: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    if not part.parts or parent:
        yield "drop"
    if part.parts:
        return
    if _EXISTENCE.fullmatch(part.text):
        yield "turn"
    elif _BETWEEN.fullmatch(part.text):
        yield from ("shift low", "shift high", "drop low", "drop high")
    elif comparison := _COMPARISON.fullmatch(part.text):
        if comparison["sign"] in _SHIFTED:
            yield "shift"
        elif comparison["sign"] == "=" and _is_number(comparison["right"], arguments):
            yield "at least"


def _of_keys(part: Part, _parent: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    if not part.text.startswith(("sk ", "begins_with(sk,")):
        return
    if between := _BETWEEN.fullmatch(part.text):
        low, high = (arguments["ExpressionAttributeValues"][between[each]]["S"] for each in ("low", "high"))
        yield from ("drop", "drop low", "drop high")
        if low < high:
            yield from ("shift low", "shift high")
        return
    yield "drop"
    comparison = _COMPARISON.fullmatch(part.text)
    if comparison and comparison["sign"] in _SHIFTED:
        yield "shift"


def _of_update(text: str) -> Iterator[Mutation]:
    for verb, clauses in parse_update(text):
        normals = [f"{verb} {normal(each)}" for each in clauses]
        for each in normals:
            yield Mutation(UPDATE, "drop", each)
            if normals.count(each) > 1:
                yield Mutation(UPDATE, "drop last", each)
            if _DEFAULT.search(each):
                yield Mutation(UPDATE, "take the default of", each)


def _spoiled_update(text: str, mutation: Mutation) -> str:
    sections: list[tuple[str, list[str]]] = []
    for verb, clauses in parse_update(text):
        places = [place for place, each in enumerate(clauses) if f"{verb} {normal(each)}" == mutation.clause]
        if mutation.kind == "drop last":
            places = places[-1:]
        if mutation.kind == "take the default of":
            kept = [_DEFAULT.sub(r"\2", each) if place in places else each for place, each in enumerate(clauses)]
        else:
            kept = [each for place, each in enumerate(clauses) if place not in places]
        sections.append((verb, kept))
    return update_text(sections)


def _spoil_condition(arguments: Arguments, text: str, mutation: Mutation) -> None:
    tree = parse_condition(text)
    last = [part for part, _ in walk(tree) if part.normal == mutation.clause][-1]

    def change(part: Part, parent: str) -> str | bool | None:
        if part.normal != mutation.clause or (mutation.kind == "drop last" and part is not last):
            return None
        if mutation.kind in ("drop", "drop last"):
            return parent != "OR"
        return _spoiled_clause(part.text, mutation.kind)

    result = rewritten(tree, change)
    if result is True and "Key" in arguments and "UpdateExpression" not in arguments:
        result = _ALWAYS  # a ConditionCheck needs one
    if result is True:
        del arguments[mutation.parameter]
    else:
        arguments[mutation.parameter] = _NEVER if result is False else result


def _spoiled_clause(text: str, kind: str) -> str:
    if kind == "turn":
        turned = text.replace("attribute_not_exists(", "attribute_exists(")
        return turned if turned != text else text.replace("attribute_exists(", "attribute_not_exists(")
    if between := _BETWEEN.fullmatch(text):
        left, low, high = between["left"], between["low"], between["high"]
        return {
            "shift low": f"{left} > {low} AND {left} <= {high}",
            "shift high": f"{left} >= {low} AND {left} < {high}",
            "drop low": f"{left} <= {high}",
            "drop high": f"{left} >= {low}",
        }[kind]
    comparison = _COMPARISON.fullmatch(text)
    assert comparison is not None
    return f"{comparison['left']} {_SHIFTED.get(comparison['sign'], '>=')} {comparison['right']}"


def _spoil_keys(arguments: Arguments, mutation: Mutation) -> None:
    """The texts of keys have no neighbours, but the letters at the ends of the alphabet stand for them."""
    clauses = [part.text for part, _ in walk(parse_condition(arguments[KEYS])) if not part.parts]
    values = arguments["ExpressionAttributeValues"]

    def change(text: str) -> str:
        if normal(text) != mutation.clause:
            return text
        if mutation.kind == "drop":
            return ""
        between = _BETWEEN.fullmatch(text)
        if between is None or mutation.kind.startswith("drop"):
            return _spoiled_clause(text, mutation.kind)
        low, high = values[between["low"]]["S"], values[between["high"]]["S"]
        if mutation.kind == "shift low":
            arguments["ExpressionAttributeValues"] = {**values, _SHIFTED_VALUE: {"S": f"{low}\0"}}
            return f"{between['left']} BETWEEN {_SHIFTED_VALUE} AND {between['high']}"
        below = f"{high[:-1]}{chr(ord(high[-1]) - 1)}\uffff"
        arguments["ExpressionAttributeValues"] = {**values, _SHIFTED_VALUE: {"S": max(low, below)}}
        return f"{between['left']} BETWEEN {between['low']} AND {_SHIFTED_VALUE}"

    arguments[KEYS] = " AND ".join(filter(None, map(change, clauses)))


def _is_number(operand: str, arguments: Mapping[str, Any]) -> bool:
    return "N" in arguments.get("ExpressionAttributeValues", {}).get(operand, ())


def _pruned(arguments: Arguments) -> Arguments:
    """The call without the names and values that no expression uses any more."""
    used = {
        each
        for parameter in (*PARAMETERS, "ProjectionExpression")
        for each in _USED.findall(arguments.get(parameter, ""))
    }
    for parameter in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        if parameter in arguments:
            kept = {name: value for name, value in arguments.pop(parameter).items() if name in used}
            arguments |= {parameter: kept} if kept else {}
    return arguments
