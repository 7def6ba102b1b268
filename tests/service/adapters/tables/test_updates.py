"""UpdateExpressions. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/."""

from typing import Any

import pytest

from penstock_core.storage.item import item_bytes
from tests.service.adapters.tables.calls import KEY, LOG, Stage, number, refused, text


def numbers(*values: int) -> dict[str, Any]:
    return {"L": [*map(number, values)]}


ITEM = {
    "n": number(5),
    "s": text("abc"),
    "l": numbers(0, 1, 2, 3),
    "m": {"M": {"a": number(1), "deep": {"M": {"l": numbers(7)}}}},
    "ss": {"SS": ["x", "y"]},
    "ns": {"NS": ["1", "2"]},
}
VALUES = {
    ":one": number(1),
    ":two": number(2),
    ":half": number("0.5"),
    ":s": text("s"),
    ":l": numbers(9),
    ":map": {"M": {}},
    ":xz": {"SS": ["x", "z"]},
    ":xy": {"SS": ["x", "y"]},
    ":nine": {"NS": ["9"]},
}


def used(expression: str) -> Any:
    words = expression.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return {name: VALUES[name] for name in words if name.startswith(":")} or None


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("SET n = :one", {"n": number(1)}),
        ("SET fresh = :s", {"fresh": text("s")}),
        ("set n = n + :one", {"n": number(6)}),
        ("SET n = n - :half", {"n": number("4.5")}),
        ("SET n = :one - n", {"n": number(-4)}),
        ("SET n = if_not_exists(n, :one) + :one", {"n": number(6)}),
        ("SET fresh = if_not_exists(fresh, :one) + :one", {"fresh": number(2)}),
        ("SET fresh = if_not_exists(nothing, n)", {"fresh": number(5)}),
        ("SET l = list_append(l, :l)", {"l": numbers(0, 1, 2, 3, 9)}),
        ("SET l = list_append(:l, l)", {"l": numbers(9, 0, 1, 2, 3)}),
        ("SET fresh = list_append(if_not_exists(fresh, :l), :l)", {"fresh": numbers(9, 9)}),
        ("SET l[1] = :two", {"l": numbers(0, 2, 2, 3)}),
        ("SET l[9] = :two, l[7] = :one", {"l": numbers(0, 1, 2, 3, 1, 2)}),
        ("SET m.a = :two, m.b = :s", {"m": {"M": {**ITEM["m"]["M"], "a": number(2), "b": text("s")}}}),
        (
            "SET m.deep.l[0] = :two, m.deep.x = :one",
            {"m": {"M": {"a": number(1), "deep": {"M": {"l": numbers(2), "x": number(1)}}}}},
        ),
        ("SET fresh = n, n = :one", {"fresh": number(5), "n": number(1)}),
        ("SET n = l[3], s = m.a", {"n": number(3), "s": number(1)}),
        ("REMOVE l[0], l[2]", {"l": numbers(1, 3)}),
        ("REMOVE l[2], l[0]", {"l": numbers(1, 3)}),
        ("REMOVE l[9]", {}),
        ("REMOVE l[1] SET l[2] = :one", {"l": numbers(0, 1, 3)}),
        ("REMOVE l[9] SET l[4] = :one, l[5] = :one", {"l": numbers(0, 1, 2, 3, 1, 1)}),
        ("REMOVE m.a, nothing", {"m": {"M": {"deep": ITEM["m"]["M"]["deep"]}}}),
        ("ADD n :one", {"n": number(6)}),
        ("ADD fresh :one", {"fresh": number(1)}),
        ("ADD ss :xz", {"ss": {"SS": ["x", "y", "z"]}}),
        ("ADD ns :nine, fresh :nine", {"ns": {"NS": ["1", "2", "9"]}, "fresh": {"NS": ["9"]}}),
        ("DELETE ss :xz", {"ss": {"SS": ["y"]}}),
        ("DELETE fresh :xz", {}),
        (
            "SET n = :one REMOVE s ADD fresh :one DELETE ss :xz",
            {"n": number(1), "fresh": number(1), "ss": {"SS": ["y"]}},
        ),
    ],
)
def test_update_changes(stage: Stage, expression: str, changed: dict[str, Any]) -> None:
    """Expressions.UpdateExpressions.html: SET, REMOVE, ADD, DELETE.

    "DynamoDB first makes a copy of the item": each value is of the item as it was. Removed elements of a list are those
    of the list as it was, and a position behind its end appends.
    """
    stage.put(ITEM)
    stage.update(expression, used(expression))
    expected = {**ITEM, **changed}
    if "REMOVE s " in expression:
        del expected["s"]
    assert stage.get() == expected
    stored = stage.tables._stored((LOG, "p", "s"))
    assert stored is not None
    assert stored[1] == item_bytes(stored[0]), "the size is counted along"


def test_the_old_item_stays_as_it_was(stage: Stage) -> None:
    """Readers hold stored maps: an update makes new ones on its way."""
    stage.put(ITEM)
    before = stage.tables.get_item(TableName=LOG, Key=KEY, ConsistentRead=True)["Item"]
    stage.update("SET m.deep.l[0] = :one, m.b = :one REMOVE l[0], m.a ADD n :one", {":one": number(1)})
    assert before == {**KEY, **ITEM}
    assert stage.get()["m"] == {"M": {"deep": {"M": {"l": numbers(1)}}, "b": number(1)}}


def test_a_set_that_loses_its_last_element_goes(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Sets: a set is never empty."""
    stage.put(ITEM)
    stage.update("DELETE ss :xy", {":xy": VALUES[":xy"]})
    assert "ss" not in stage.get()


def test_an_update_makes_an_item_that_is_not_there(stage: Stage) -> None:
    """API_UpdateItem.html: adds a new item to the table if it does not already exist."""
    stage.update("SET a = :one", {":one": number(1)})
    assert stage.get() == {"a": number(1)}


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("SET fresh = nothing", "refers to an attribute that does not exist"),
        ("SET fresh = nothing + :one", "refers to an attribute that does not exist"),
        ("SET fresh = list_append(nothing, :l)", "refers to an attribute that does not exist"),
        ("SET n = s + :one", "incorrect data type"),
        ("SET n = list_append(n, :l)", "incorrect data type"),
        ("ADD s :one", "incorrect data type"),
        ("ADD n :xz", "incorrect data type"),
        ("DELETE ns :xz", "incorrect data type"),
        ("SET nothing.a = :one", "document path .* is invalid"),
        ("SET s.a = :one", "document path .* is invalid"),
        ("SET m[0] = :one", "document path .* is invalid"),
        ("SET l.a = :one", "document path .* is invalid"),
        ("SET l[9].a = :one", "document path .* is invalid"),
        ("REMOVE nothing.a", "document path .* is invalid"),
        ("REMOVE n[0]", "document path .* is invalid"),
    ],
)
def test_updates_that_do_not_fit_the_item_are_refused(stage: Stage, expression: str, why: str) -> None:
    """Expressions.UpdateExpressions.html; API_UpdateItem.html, Errors."""
    stage.put(ITEM)
    refused(lambda: stage.update(expression, used(expression)), why)
    assert stage.get() == ITEM, "nothing was changed"


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "can not be empty"),
        ("PUT n = :one", "Syntax error"),
        ("SET", "Syntax error"),
        ("SET n = :one,", "Syntax error"),
        ("SET n :one", "Syntax error"),
        ("SET n = :one + :two + :one", "Syntax error"),
        ("SET n = (:one)", "Syntax error"),
        ("REMOVE n = :one", "Syntax error"),
        ("ADD n s", "Syntax error"),
        ("SET n = :one SET s = :two", '"SET" section can only be used once'),
        ("SET n = size(s)", "Invalid function name"),
        ("SET n = if_not_exists(:one, :two)", "requires a document path"),
        ("SET n = n + :s", "Incorrect operand type"),
        ("SET l = list_append(l, :one)", "Incorrect operand type"),
        ("ADD n :s", "Incorrect operand type"),
        ("DELETE ns :one", "Incorrect operand type"),
        ("ADD m.a :one", "top-level attributes"),
        ("SET n = :one, n = :two", "overlap"),
        ("SET n = :one REMOVE n", "overlap"),
        ("SET m = :map, m.a = :one", "overlap"),
        ("SET m.deep.l[0] = :one REMOVE m.deep", "overlap"),
        ("SET m.a = :one, m[0] = :two", "conflict"),
        ("SET pk = :s", "Cannot update attribute pk"),
        ("SET n = :one REMOVE sk", "Cannot update attribute sk"),
    ],
)
def test_wrong_updates_are_refused(stage: Stage, expression: str, why: str) -> None:
    """Expressions.UpdateExpressions.html, syntax; each clause once; paths overlap; API_UpdateItem.html: no keys."""
    stage.put(ITEM)
    refused(lambda: stage.update(expression, used(expression)), why)


def test_names_are_looked_at_behind_their_placeholders(stage: Stage) -> None:
    """Expressions.ExpressionAttributeNames.html."""
    stage.put(ITEM)
    one = {":one": number(1)}
    refused(lambda: stage.update("SET #a = :one, n = :one", one, {"#a": "n"}), "overlap")
    refused(lambda: stage.update("SET #a.#b = :one, m.a = :one", one, {"#a": "m", "#b": "a"}), "overlap")
    refused(lambda: stage.update("SET #a = :one", one, {"#a": "pk"}), "part of the key")
    stage.update("SET m.#pk = :one, #m.#dotted = :one", one, {"#pk": "pk", "#m": "m", "#dotted": "a.b"})
    assert stage.get()["m"]["M"] == {**ITEM["m"]["M"], "pk": number(1), "a.b": number(1)}


def test_an_update_has_300_operators_and_functions(stage: Stage) -> None:
    """Constraints.html: The maximum number of operators or functions allowed in an UpdateExpression is 300."""
    stage.put({"n": number(1)})
    sets = [f"a{each}=n+:a" for each in range(300)]
    stage.update(f"SET {','.join(sets)}", {":a": number(1)})
    refused(lambda: stage.update(f"SET {','.join(sets)},b=n+:a", {":a": number(1)}), "too many operators")


@pytest.mark.parametrize(
    ("old", "sum_"), [("9" * 38, None), ("0.1", "1.1"), ("-1", "0"), ("1E+37", "1" + "0" * 36 + "1")]
)
def test_sums_are_exact_or_refused(stage: Stage, old: str, sum_: str | None) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Number: 38 digits."""
    stage.put({"n": number(old)})
    if sum_ is None:
        stage.put({"n": number("1E+40")})
        refused(lambda: stage.update("ADD n :one", {":one": number(1)}), "38 significant digits")
        return
    stage.update("ADD n :one", {":one": number(1)})
    assert stage.get() == {"n": number(sum_)}
