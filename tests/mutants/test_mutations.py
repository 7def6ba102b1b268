"""The generator of mutants: what it spoils in an expression, and the call that comes of it."""

from typing import Any

import pytest

from tests.mutants.driver import Mutant, parse_mutant
from tests.mutants.mutations import CONDITION, KEYS, UPDATE, Mutation, mutated, mutations


def spoiled(parameter: str, text: str, values: Any = None) -> dict[str, str | None]:
    """Each mutation of the parameter, and the text with it."""
    arguments = {parameter: text, "TableName": "log", "ExpressionAttributeValues": values or {}}
    found = {}
    for mutation in mutations(arguments):
        call = mutated(arguments, mutation)
        assert call is not None
        found[f"{mutation.kind} {mutation.clause}"] = call.get(parameter)
    return found


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def test_each_conjunct_is_dropped_and_each_test_of_existence_turned() -> None:
    assert spoiled(CONDITION, "attribute_exists(a) AND attribute_not_exists(b)") == {
        "drop attribute_exists(a)": "attribute_not_exists(b)",
        "turn attribute_exists(a)": "attribute_not_exists(a) AND attribute_not_exists(b)",
        "drop attribute_not_exists(b)": "attribute_exists(a)",
        "turn attribute_not_exists(b)": "attribute_exists(a) AND attribute_exists(b)",
    }


def test_condition_of_one_test_goes_whole() -> None:
    assert spoiled(CONDITION, "refs = :old") == {"drop refs = :old": None}


def test_dropped_disjunct_never_holds_and_a_conjunct_in_it_always() -> None:
    assert spoiled(CONDITION, "b = :t AND (a = :x OR a = :y AND c = :z)") == {
        "drop b = :t": "(a = :x OR a = :y AND c = :z)",
        "drop a = :x OR a = :y AND c = :z": "b = :t",
        "drop a = :x": "b = :t AND a = :y AND c = :z",
        "drop a = :y AND c = :z": "b = :t AND a = :x",
        "drop a = :y": "b = :t AND (a = :x OR c = :z)",
        "drop c = :z": "b = :t AND (a = :x OR a = :y)",
    }


def test_comparisons_shift_by_one() -> None:
    found = spoiled(CONDITION, "a < :n AND size(#b) >= :n AND version = :n", {":n": number(1)})
    assert found["shift a < :n"] == "a <= :n AND size(#b) >= :n AND version = :n"
    assert found["shift size(#b) >= :n"] == "a < :n AND size(#b) > :n AND version = :n"
    assert found["at least version = :n"] == "a < :n AND size(#b) >= :n AND version >= :n"
    assert "at least config = :s" not in spoiled(CONDITION, "config = :s", {":s": {"S": ""}})


def test_bounds_of_between_shift_and_go() -> None:
    assert spoiled(CONDITION, "a BETWEEN :l AND :h AND b = :s") == {
        "drop a BETWEEN :l AND :h": "b = :s",
        "shift low a BETWEEN :l AND :h": "a > :l AND a <= :h AND b = :s",
        "shift high a BETWEEN :l AND :h": "a >= :l AND a < :h AND b = :s",
        "drop low a BETWEEN :l AND :h": "a <= :h AND b = :s",
        "drop high a BETWEEN :l AND :h": "a >= :l AND b = :s",
        "drop b = :s": "a BETWEEN :l AND :h",
    }


def test_parts_of_one_template_are_one_site() -> None:
    found = spoiled(CONDITION, "tail[0] = :r0 AND tail[1] = :r1")
    assert found == {"drop tail[] = :r": None, "drop last tail[] = :r": "tail[0] = :r0"}
    assert [*spoiled(CONDITION, "#l.#n3 = :v7")] == ["drop #l.#n = :v"]


def test_each_clause_of_an_update_is_skipped() -> None:
    assert spoiled(UPDATE, "SET a = if_not_exists(a, :z) + :o, b = list_append(b, :l) REMOVE c[1], c[0] ADD d :n") == {
        "drop SET a = if_not_exists(a, :z) + :o": "SET b = list_append(b, :l) REMOVE c[1], c[0] ADD d :n",
        "take the default of SET a = if_not_exists(a, :z) + :o": "SET a = :z + :o, b = list_append(b, :l) "
        "REMOVE c[1], c[0] ADD d :n",
        "drop SET b = list_append(b, :l)": "SET a = if_not_exists(a, :z) + :o REMOVE c[1], c[0] ADD d :n",
        "drop REMOVE c[]": "SET a = if_not_exists(a, :z) + :o, b = list_append(b, :l) ADD d :n",
        "drop last REMOVE c[]": "SET a = if_not_exists(a, :z) + :o, b = list_append(b, :l) REMOVE c[1] ADD d :n",
        "drop ADD d :n": "SET a = if_not_exists(a, :z) + :o, b = list_append(b, :l) REMOVE c[1], c[0]",
    }
    assert spoiled(UPDATE, "SET a = :x") == {"drop SET a = :x": "REMOVE mutant_of_nothing"}


def test_bounds_of_keys_shift_and_go() -> None:
    found = spoiled(KEYS, "pk = :p AND sk BETWEEN :f AND :l", {":p": {"S": "p"}, ":f": {"S": "a"}, ":l": {"S": "c"}})
    assert found == {
        "drop sk BETWEEN :f AND :l": "pk = :p",
        "drop low sk BETWEEN :f AND :l": "pk = :p AND sk <= :l",
        "drop high sk BETWEEN :f AND :l": "pk = :p AND sk >= :f",
        "shift low sk BETWEEN :f AND :l": "pk = :p AND sk BETWEEN :mutant AND :l",
        "shift high sk BETWEEN :f AND :l": "pk = :p AND sk BETWEEN :f AND :mutant",
    }
    assert spoiled(KEYS, "pk = :p AND sk > :a") == {
        "drop sk > :a": "pk = :p",
        "shift sk > :a": "pk = :p AND sk >= :a",
    }


@pytest.mark.parametrize(
    ("kind", "values"),
    [("low", {":mutant": {"S": "a\0"}, ":l": {"S": "c"}}), ("high", {":f": {"S": "a"}, ":mutant": {"S": "b\uffff"}})],
)
def test_shifted_bound_of_keys_leaves_out_the_bound_alone(kind: str, values: Any) -> None:
    arguments = {KEYS: "sk BETWEEN :f AND :l", "ExpressionAttributeValues": {":f": {"S": "a"}, ":l": {"S": "c"}}}
    call = mutated(arguments, Mutation(KEYS, f"shift {kind}", "sk BETWEEN :f AND :l"))
    assert call is not None
    assert call["ExpressionAttributeValues"] == values


def test_names_and_values_that_nothing_uses_go() -> None:
    arguments = {
        CONDITION: "#a = :a AND #b = :b",
        "ExpressionAttributeNames": {"#a": "a", "#b": "b"},
        "ExpressionAttributeValues": {":a": {"S": ""}, ":b": {"S": ""}},
    }
    call = mutated(arguments, Mutation(CONDITION, "drop", "#a = :a"))
    assert call == {
        CONDITION: "#b = :b",
        "ExpressionAttributeNames": {"#b": "b"},
        "ExpressionAttributeValues": {":b": {"S": ""}},
    }


def test_check_of_a_transaction_keeps_a_condition() -> None:
    arguments = {CONDITION: "attribute_exists(pk)", "Key": {}, "TableName": "log"}
    call = mutated(arguments, Mutation(CONDITION, "drop", "attribute_exists(pk)"))
    assert call is not None
    assert call[CONDITION] == "attribute_exists(pk) OR attribute_not_exists(pk)"


def test_name_of_a_mutant_is_read_back() -> None:
    for kind in ("drop", "drop last", "shift low"):
        mutant = Mutant("LogIndex.append update_item log", Mutation(CONDITION, kind, "a BETWEEN :l AND :h"))
        assert parse_mutant(str(mutant)) == mutant
