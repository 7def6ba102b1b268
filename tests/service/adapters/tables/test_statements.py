"""Names and values of a call, and its parameters.

Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/.
"""

from typing import Any

import pytest

from penstock_service.adapters.tables.parser import RESERVED_WORDS
from tests.service.adapters.tables.calls import KEY, LOG, Stage, number, refused

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
