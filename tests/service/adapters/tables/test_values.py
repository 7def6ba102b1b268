"""Attribute values. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.storage.item import item_bytes
from penstock_service.adapters.tables.values import normal
from tests.service.adapters.tables.calls import KEY, LOG, Stage, number, refused, text


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [("007", "7"), ("-0", "0"), ("1.50", "1.5"), ("1e3", "1000"), ("+5", "5"), ("1E-3", "0.001"), ("0.0", "0")],
)
def test_a_number_is_stored_in_one_form(stage: Stage, given_text: str, stored: str) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Number: Leading and trailing zeroes are trimmed."""
    stage.put({"a": number(given_text)})
    assert stage.get() == {"a": number(stored)}
    assert stage.holds("a = :a", {":a": number(given_text)})


@pytest.mark.parametrize("largest", ["9" * 38, "-" + "9" * 38, f"9.{'9' * 37}E+125", "1E-130"])
def test_the_longest_and_largest_numbers_are_taken(stage: Stage, largest: str) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Number: up to 38 digits of precision, from 1E-130 to 9.99E+125."""
    stage.put({"a": number(largest)})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("9" * 39, "more than 38 significant digits"),
        ("1E+126", "overflow"),
        ("1E-131", "underflow"),
        ("", "cannot be converted"),
        ("seven", "cannot be converted"),
        ("1_0", "cannot be converted"),
        ("NaN", "cannot be converted"),
        ("Infinity", "cannot be converted"),
        (" 1", "cannot be converted"),
        ("٣", "cannot be converted"),
    ],
)
def test_other_numbers_are_refused(stage: Stage, wrong: str, why: str) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Number: you will receive an exception."""
    refused(lambda: stage.put({"a": number(wrong)}), why)
    refused(lambda: stage.put({"a": {"NS": [wrong]}}), why)
    refused(lambda: stage.update("SET a = :a", {":a": number(wrong)}), why)


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_whole_numbers_of_38_digits_stay_as_they_are(value: int) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Number: up to 38 digits of precision."""
    assert normal(number(value)) == number(value)


def test_numbers_compare_by_value(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Number."""
    stage.put({"a": number("10"), "b": number("-9.5")})
    assert stage.holds("a > :nine AND b < :minus", {":nine": number("9"), ":minus": number("-9.49")})
    assert not stage.holds("a < :nine", {":nine": number("9")})


def test_texts_compare_by_their_utf8_bytes(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, String: collates and compares strings using the bytes of UTF-8."""
    stage.put({"a": text("\uffff"), "b": text("Z")})
    assert stage.holds("a < :emoji AND b < :small", {":emoji": text("\U0001f600"), ":small": text("a")})


def test_bytes_compare_as_unsigned(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Binary: treats each byte of the binary data as unsigned."""
    stage.put({"a": {"B": b"\x80"}})
    assert stage.holds("a > :low", {":low": {"B": b"\x7f"}})


def test_empty_texts_and_bytes_are_taken_if_they_are_no_keys(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, String and Binary: empty values are allowed except in keys."""
    stage.put({"a": text(""), "b": {"B": b""}, "c": {"L": []}, "d": {"M": {}}})
    assert stage.get() == {"a": text(""), "b": {"B": b""}, "c": {"L": []}, "d": {"M": {}}}


@pytest.mark.parametrize("empty", [{"SS": []}, {"NS": []}, {"BS": []}, {"M": {"inner": {"SS": []}}}])
def test_a_set_has_an_element(stage: Stage, empty: Any) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Sets: empty sets are not allowed."""
    refused(lambda: stage.put({"a": empty}), "empty")
    refused(lambda: stage.update("SET a = :a", {":a": empty}), "empty")


@pytest.mark.parametrize("twice", [{"SS": ["a", "a"]}, {"NS": ["1", "1.0"]}, {"BS": [b"a", b"a"]}])
def test_a_set_has_each_element_once(stage: Stage, twice: Any) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Sets: Each value within a set must be unique."""
    refused(lambda: stage.put({"a": twice}), "duplicates")


def test_sets_are_equal_in_any_order(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Sets: The order of the values within a set is not preserved."""
    stage.put({"a": {"SS": ["b", "a"]}, "b": {"L": [number(1), number(2)]}})
    assert stage.holds("a = :a AND b <> :b", {":a": {"SS": ["a", "b"]}, ":b": {"L": [number(2), number(1)]}})


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = text("")
    for _ in range(levels):
        value = {"L": [value]}
    return value


def test_values_nest_32_levels_deep(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, Document types: up to 32 levels deep."""
    stage.put({"a": nested(32)})
    refused(lambda: stage.put({"a": nested(33)}), "Nesting Levels")


@pytest.mark.parametrize("wrong", [{}, {"S": "a", "N": "1"}, {"NULL": False}])
def test_a_value_has_one_type(stage: Stage, wrong: Any) -> None:
    """API_AttributeValue.html: a name, which is the data type, and a value; NULL is true."""
    refused(lambda: stage.put({"a": wrong}))


@pytest.mark.parametrize("wrong", [{"N": 1}, {"B": "text"}, {"BOOL": "true"}, {"T": "a"}, {"B": 3}])
def test_what_botocore_would_not_send_is_a_defect(stage: Stage, wrong: Any) -> None:
    """botocore validates the types of parameters before it sends them."""
    with pytest.raises((TypeError, AttributeError)):
        stage.put({"a": wrong})


def test_half_a_surrogate_pair_is_refused(stage: Stage) -> None:
    """HowItWorks.NamingRulesDataTypes.html, String: Unicode with UTF-8 binary encoding."""
    refused(lambda: stage.put({"a": text("\ud800")}), code="SerializationException")


def test_the_callers_maps_and_lists_may_change_after_the_call(stage: Stage) -> None:
    """The tables keep no map or list of the caller."""
    item: Any = {**KEY, "a": {"L": [number(1)]}, "b": {"M": {"c": number(1)}}}
    stage.tables.put_item(TableName=LOG, Item=item)
    item["a"]["L"].append(number(2))
    item["b"]["M"]["d"] = number(2)
    item["c"] = number(3)
    assert stage.get() == {"a": {"L": [number(1)]}, "b": {"M": {"c": number(1)}}}


def test_an_item_has_400_kb_with_its_names(stage: Stage) -> None:
    """Constraints.html, Item size: 400 KB, which includes both attribute name binary length and value lengths."""
    free = 409_600 - item_bytes({**KEY, "a": {"B": b""}})
    stage.put({"a": {"B": bytes(free)}})
    refused(lambda: stage.put({"a": {"B": bytes(free + 1)}}), "Item size has exceeded")
    refused(lambda: stage.update("SET b = :b", {":b": number(1)}), "Item size to update has exceeded")
    assert stage.get() == {"a": {"B": bytes(free)}}
