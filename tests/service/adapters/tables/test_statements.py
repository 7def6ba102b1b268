"""Names and values of a call, and its parameters.

Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/.

Attribute values. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.storage.item import item_bytes
from penstock_service.adapters.tables.parser import RESERVED_WORDS
from penstock_service.adapters.tables.values import normal
from tests.service.adapters.tables.calls import KEY, LOG, Stage, number, refused, text

ONE = {":one": number(1)}


@pytest.mark.parametrize(
    ("values", "names", "why"),
    [
        (None, None, "not defined.*:one"),
        ({**ONE, ":two": number(2)}, None, "ExpressionAttributeValues unused"),
        (ONE, {"#a": "a"}, "ExpressionAttributeNames unused"),
        (ONE, {}, "must not be empty"),
    ],
)
def test_each_placeholder_is_defined_and_used(stage: Stage, values: Any, names: Any, why: str) -> None:
    """Expressions.ExpressionAttributeValues.html; API_UpdateItem.html: ValidationException."""
    refused(lambda: stage.update("SET a = :one", values, names), why)
    refused(lambda: stage.holds("a = :one", values, names), why)


def test_a_name_must_be_defined(stage: Stage) -> None:
    """Expressions.ExpressionAttributeNames.html."""
    refused(lambda: stage.update("SET #a = :one", ONE), "not defined; #a")
    refused(lambda: stage.update("SET #a = :one", ONE, {"#b": "b"}), "not defined; #a")


def test_values_need_an_expression(stage: Stage) -> None:
    """API_PutItem.html, ExpressionAttributeValues: values that can be substituted in an expression."""
    refused(lambda: stage.put(ExpressionAttributeValues=ONE), "unused")
    refused(lambda: stage.put(ExpressionAttributeValues={}), "must not be empty")


def test_one_placeholder_may_serve_several_expressions(stage: Stage) -> None:
    """Expressions.ExpressionAttributeValues.html: a substitute for an actual value."""
    stage.put({"a": number(1)})
    stage.update("SET #b = :one", ONE, {"#b": "b"}, ConditionExpression="a = :one AND attribute_not_exists(#b)")
    assert stage.get() == {"a": number(1), "b": number(1)}


def test_reserved_words_are_those_of_the_guide() -> None:
    """ReservedWords.html."""
    assert len(RESERVED_WORDS) == 573
    assert {"ABORT", "COUNT", "NAME", "STATUS", "TTL", "ZONE"} <= RESERVED_WORDS


@pytest.mark.parametrize("reserved", ["status", "Ttl", "ZONE"])
def test_a_reserved_word_needs_a_placeholder(stage: Stage, reserved: str) -> None:
    """ReservedWords.html: you can define a name variable to replace the name."""
    refused(lambda: stage.update(f"SET {reserved} = :one", ONE), f"reserved keyword: {reserved}")
    refused(lambda: stage.query(ProjectionExpression=reserved), f"reserved keyword: {reserved}")
    stage.update("SET #a = :one", ONE, {"#a": reserved})
    assert stage.get() == {reserved: number(1)}


@pytest.mark.parametrize(
    "unknown",
    [
        {"Expected": {}},
        {"AttributeUpdates": {}},
        {"ReturnItemCollectionMetrics": "SIZE"},
        {"ConditionalOperator": "AND"},
        {"Tablename": "log"},
    ],
)
def test_a_parameter_that_the_tables_do_not_know_is_a_defect(stage: Stage, unknown: Any) -> None:
    """botocore refuses parameters without meaning; the old ones have meaning, and no tables here."""
    with pytest.raises(TypeError, match=next(iter(unknown))):
        stage.update("SET a = :one", ONE, **unknown)
    with pytest.raises(TypeError, match="IndexName"):
        stage.query(IndexName="index")
    with pytest.raises(TypeError, match="AttributesToGet"):
        stage.tables.get_item(TableName=LOG, Key=KEY, AttributesToGet=["a"])
    with pytest.raises(TypeError, match="UpdateExpression"):
        stage.tables.update_item(TableName=LOG, Key=KEY)
    with pytest.raises(NotImplementedError, match="INDEXES"):
        stage.put(ReturnConsumedCapacity="INDEXES")


def test_a_table_that_is_not_declared_is_not_found(stage: Stage) -> None:
    """API_PutItem.html, Errors: ResourceNotFoundException."""
    for call in (
        lambda: stage.tables.get_item(TableName="other", Key=KEY),
        lambda: stage.tables.put_item(TableName="other", Item=KEY),
        lambda: stage.tables.scan(TableName="other"),
        lambda: stage.tables.batch_get_item(RequestItems={"other": {"Keys": [KEY]}}),
        lambda: stage.transact({"Put": {"TableName": "other", "Item": KEY}}),
    ):
        refused(call, code="ResourceNotFoundException")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"pk": {"S": "p"}}, "does not match the schema"),
        ({**KEY, "a": number(1)}, "does not match the schema"),
        ({"pk": {"S": "p"}, "sk": number(1)}, "does not match the schema"),
        ({"pk": {"S": ""}, "sk": {"S": "s"}}, "empty string value. Key: pk"),
        ({"pk": {"S": "p"}, "sk": {"S": ""}}, "empty string value. Key: sk"),
        ({"pk": {"S": "p" * 2_049}, "sk": {"S": "s"}}, "2048 bytes"),
        ({"pk": {"S": "p"}, "sk": {"S": "é" * 513}}, "1024 bytes"),
    ],
)
def test_a_key_has_both_attributes_within_their_bounds(stage: Stage, wrong: Any, why: str) -> None:
    """Constraints.html: a partition key has 1 to 2048 bytes, a sort key 1 to 1024; API_GetItem.html, Key."""
    refused(lambda: stage.tables.get_item(TableName=LOG, Key=wrong), why)
    refused(lambda: stage.tables.delete_item(TableName=LOG, Key=wrong), why)
    refused(lambda: stage.tables.batch_get_item(RequestItems={LOG: {"Keys": [wrong]}}), why)
    refused(lambda: stage.transact({"Delete": {"TableName": LOG, "Key": wrong}}), why)


def test_the_longest_keys_are_taken(stage: Stage) -> None:
    """Constraints.html, Partition key length and Sort key length."""
    stage.tables.put_item(TableName=LOG, Item={"pk": {"S": "é" * 1_024}, "sk": {"S": "s" * 1_024}})


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"pk": {"S": "p"}}, "Missing the key sk"),
        ({"pk": {"S": "p"}, "sk": number(1)}, "Type mismatch for key sk expected: S actual: N"),
        ({"pk": {"S": ""}, "sk": {"S": "s"}}, "empty string value. Key: pk"),
    ],
)
def test_an_item_has_its_keys(stage: Stage, item: Any, why: str) -> None:
    """API_PutItem.html, Item: you must provide all of the attributes for the primary key."""
    refused(lambda: stage.tables.put_item(TableName=LOG, Item=item), why)


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
