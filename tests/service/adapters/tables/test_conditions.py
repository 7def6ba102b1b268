"""Conditions. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/."""

from typing import Any

import pytest

from tests.service.adapters.tables.calls import Stage, number, refused, text

ITEM = {
    "n": number(5),
    "s": text("abc"),
    "b": {"B": b"abc"},
    "ss": {"SS": ["x", "y"]},
    "ns": {"NS": ["1", "2"]},
    "l": {"L": [text("x"), number(2), {"M": {"deep": text("d")}}]},
    "m": {"M": {"a": number(1), "it.em": number(9)}},
    "yes": {"BOOL": True},
    "nil": {"NULL": True},
}
VALUES = {
    ":five": number(5),
    ":four": number(4),
    ":six": number(6),
    ":x": text("x"),
    ":ab": text("ab"),
    ":bytes": {"B": b"ab"},
    ":two": number(2),
    ":three": number(3),
    ":one": number(1),
    ":S": text("S"),
    ":L": text("L"),
    ":d": text("d"),
    ":set": {"SS": ["y", "x"]},
    ":map": {"M": {"deep": text("d")}},
}


def used(condition: str) -> dict[str, Any]:
    """The values that the condition names."""
    words = condition.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return {name: VALUES[name] for name in words if name.startswith(":")}


HOLDS = """
n = :five | n <> :four | n < :six | n <= :five | n > :four | n >= :five
n BETWEEN :five AND :six | n BETWEEN :four AND :five | n IN (:four, :five)
ss = :set | l[2] = :map | l[2].deep = :d | l[1] = :two | m.a = :one
s > :ab | n <> :x | nothing <> :five | NOT nothing = :five | NOT n < :x
attribute_exists(n) | attribute_exists(l[2].deep) | attribute_not_exists(nothing) | attribute_not_exists(l[3])
attribute_not_exists(m.a.b) | attribute_not_exists(s.a) | attribute_not_exists(m[0]) | attribute_not_exists(l.a)
attribute_type(s, :S) | attribute_type(l, :L) | begins_with(s, :ab) | begins_with(b, :bytes)
contains(s, :ab) | contains(ss, :x) | contains(ns, :two) | contains(l, :x) | contains(l, :map)
size(s) = :three | size(b) = :three | size(ss) = :two | size(l) = :three | size(m) = :two | size(l) < n
n = :five AND s > :ab | n = :four OR s > :ab | NOT (n = :four) | NOT n = :four AND n = :five
n = :four AND n = :five OR n = :five | n = :five OR n = :four AND n = :six | (n = :four OR n = :five) AND n = :five
n = :five and not n = :four | n between :four and :six | n in (:five)
attribute_exists(yes) AND attribute_exists(nil)
"""
FAILS = """
n = :four | n <> :five | n < :five | n > :five | n BETWEEN :six AND :six | n IN (:four, :six)
nothing = :five | nothing < :five | nothing BETWEEN :four AND :six | nothing IN (:five) | size(nothing) = :one
s < :five | n > :x | n BETWEEN :ab AND :x | size(n) = :one | size(yes) = :one
attribute_exists(nothing) | attribute_exists(l[3]) | attribute_exists(m.b) | attribute_not_exists(n)
attribute_type(s, :L) | attribute_type(nothing, :S)
begins_with(s, :bytes) | begins_with(nothing, :x) | begins_with(n, :ab)
contains(s, :x) | contains(b, :bytes) | contains(ss, :ab) | contains(l, :five)
contains(n, :five) | contains(nothing, :x)
NOT (n = :five AND s > :ab) | n = :five AND NOT n = :five
"""


def cases(table: str) -> list[str]:
    return [case.strip() for line in table.strip().splitlines() for case in line.split("|")]


@pytest.mark.parametrize("condition", cases(HOLDS))
def test_condition_holds(stage: Stage, condition: str) -> None:
    """Expressions.OperatorsAndFunctions.html: comparators, functions, and AND before OR."""
    stage.put(ITEM)
    assert stage.holds(condition, used(condition) or None)


@pytest.mark.parametrize("condition", cases(FAILS))
def test_condition_fails(stage: Stage, condition: str) -> None:
    """Expressions.OperatorsAndFunctions.html: values of different types are never in an order, nor equal."""
    stage.put(ITEM)
    assert not stage.holds(condition, used(condition) or None)


def test_a_condition_on_an_item_that_is_not_there_finds_no_attributes(stage: Stage) -> None:
    """Expressions.ConditionExpressions.html: `attribute_not_exists(Id)` keeps a put from overwriting an item."""
    assert stage.holds("attribute_not_exists(pk)")
    assert not stage.holds("n = :five", {":five": number(5)})


def test_names_stand_for_any_name_on_a_path(stage: Stage) -> None:
    """Expressions.ExpressionAttributeNames.html: dots in a name need a placeholder."""
    stage.put(ITEM)
    assert stage.holds("#m.#inner = :nine", {":nine": number(9)}, {"#m": "m", "#inner": "it.em"})


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "can not be empty"),
        ("n =", "Syntax error"),
        ("n = 5", "Syntax error"),
        ("n == :five", "Syntax error"),
        ("n = :five)", "Syntax error"),
        ("(n = :five", "Syntax error"),
        ("n = :five AND", "Syntax error"),
        ("n ! :five", "Syntax error"),
        ("NOT NOT n = :five", "Syntax error"),
        ("n BETWEEN :four, :five", "Syntax error"),
        ("n IN :five", "Syntax error"),
        ("l[x] = :five", "Syntax error"),
        ("_n = :five", "Syntax error"),
        ("((n = :five))", "redundant parentheses"),
        ("((n = :five) ) AND n = :five", "redundant parentheses"),
        ("size(n)", "Syntax error"),
        ("attribute_exists(:five)", "requires a document path"),
        ("attribute_exists(n) = :five", "Syntax error"),
        ("n = attribute_exists(n)", "not allowed to be used this way"),
        ("SIZE(n) = :five", "Invalid function name"),
        ("Attribute_Exists(n)", "Invalid function name"),
        ("exists(n)", "Invalid function name"),
        ("contains(n)", "Syntax error"),
        ("attribute_exists(n, n)", "Syntax error"),
        ("n = n", "must be distinct"),
        ("contains(l[0], l[0])", "must be distinct"),
        ("n BETWEEN :six AND :four", "upper bound to be greater than or equal"),
        ("n BETWEEN :four AND :x", "same data type"),
        ("n < :set", "Incorrect operand type"),
        ("n BETWEEN :map AND :map", "Incorrect operand type"),
        ("begins_with(s, :five)", "Incorrect operand type"),
        ("attribute_type(s, :five)", "Incorrect operand type"),
        ("attribute_type(s, :x)", "Invalid attribute type name"),
        ("attribute_type(s, n)", "takes the type as a value"),
        ("name = :five", "reserved keyword: name"),
        ("m.Count = :five", "reserved keyword: Count"),
        ("and = :five", "Syntax error"),
    ],
)
def test_wrong_conditions_are_refused(stage: Stage, condition: str, why: str) -> None:
    """Expressions.OperatorsAndFunctions.html, Syntax; ReservedWords.html; functions' names are case-sensitive."""
    stage.put(ITEM)
    refused(lambda: stage.holds(condition, used(condition) or None), why)


def test_an_expression_has_4_kb(stage: Stage) -> None:
    """Constraints.html, Expression parameters: The maximum length of any expression string is 4 KB."""
    blank = " " * (4_096 - len("n=:five"))
    stage.holds(f"n={blank}:five", {":five": number(5)})
    refused(lambda: stage.holds(f"n= {blank}:five", {":five": number(5)}), "Expression size")


def test_an_expression_has_300_operators(stage: Stage) -> None:
    """example_dynamodb_Scenario_ExpressionOperatorCounting_section.html: 300 operators, in filters, too."""
    conditions = " AND ".join(["n=:a"] * 150)  # 299 operators
    stage.holds(f"NOT {conditions}", {":a": number(5)})
    refused(lambda: stage.holds(f"{conditions} AND n=:a", {":a": number(5)}), "too many operators")


def test_in_takes_100_values(stage: Stage) -> None:
    """Constraints.html, Expression parameters: The maximum number of operands for the IN comparator is 100."""
    values = {f":v{each}": number(each) for each in range(101)}
    stage.put(ITEM)
    most = dict([*values.items()][:100])
    assert stage.holds(f"n IN ({', '.join(most)})", most)
    refused(lambda: stage.holds(f"n IN ({', '.join(values)})", values), "IN")


def test_a_placeholder_has_255_bytes(stage: Stage) -> None:
    """Constraints.html, Expression parameters: any single expression attribute name or value is 255 bytes."""
    stage.holds(f":{'a' * 254} = n", {f":{'a' * 254}": number(5)})
    refused(lambda: stage.holds(f":{'a' * 255} = n", {f":{'a' * 255}": number(5)}), "255")


def test_the_size_of_a_text_beyond_ascii_is_not_guessed(stage: Stage) -> None:
    """Expressions.OperatorsAndFunctions.html, size: the length of the string, and not whether in bytes."""
    stage.put({"s": text("é")})
    with pytest.raises(NotImplementedError):
        stage.holds("size(s) = :two", {":two": number(2)})
